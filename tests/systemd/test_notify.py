"""The service protocol, against real datagram sockets."""

import os
import socket
import time

import pytest

from coldaisle.systemd.notify import Notifier, PassedSocket, passed_sockets


@pytest.fixture(params=["file", "abstract"])
def manager(request, tmp_path):
    """A socket as systemd would open it, and the NOTIFY_SOCKET that names it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(5)
        if request.param == "file":
            address = str(tmp_path / "notify")
            receiver.bind(address)
        else:
            address = f"@coldaisle-test-{os.getpid()}"
            receiver.bind("\0" + address[1:])
        yield receiver, {"NOTIFY_SOCKET": address}


def test_messages_arrive(manager):
    """Each message is one datagram of NAME=value lines, on file and abstract sockets."""
    receiver, environ = manager
    notifier = Notifier(environ)
    assert notifier.ready("8 GPUs\nsampled")
    assert receiver.recv(4096) == b"READY=1\nSTATUS=8 GPUs sampled"
    assert notifier.watchdog()
    assert receiver.recv(4096) == b"WATCHDOG=1"
    assert notifier.status("fine")
    assert receiver.recv(4096) == b"STATUS=fine"
    assert notifier.stopping()
    assert receiver.recv(4096) == b"STOPPING=1\nSTATUS=stopping"


def test_reloading_carries_the_monotonic_time(manager):
    """RELOADING has MONOTONIC_USEC between the moments before and after the call, as notify-reload demands."""
    receiver, environ = manager
    before = time.monotonic_ns() // 1000
    assert Notifier(environ).reloading()
    first, second = receiver.recv(4096).decode().split("\n")
    assert first == "RELOADING=1"
    assert before <= int(second.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000


def test_silent_without_systemd(tmp_path):
    """Without a manager, or with one that is gone, nothing is sent and nothing is raised."""
    assert not Notifier({}).ready("x")
    assert not Notifier({"NOTIFY_SOCKET": "vsock:2:1"}).ready("x")
    assert not Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("x")


def test_watchdog_interval():
    """The watchdog's period is read in seconds, and only if it is meant for this process."""
    assert Notifier({"WATCHDOG_USEC": "30000000"}).watchdog_interval == 30
    assert Notifier({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}).watchdog_interval == 30
    assert Notifier({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}).watchdog_interval is None
    assert Notifier({"WATCHDOG_USEC": "soon"}).watchdog_interval is None
    assert Notifier({}).watchdog_interval is None


def test_passed_sockets(monkeypatch):
    """Descriptors come with their names, are not inherited, and the variables are gone afterwards."""
    kept = []
    monkeypatch.setattr(os, "set_inheritable", lambda fd, inheritable: kept.append((fd, inheritable)))
    environ = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2", "LISTEN_FDNAMES": "web", "HOME": "/"}
    assert passed_sockets(environ) == [PassedSocket(3, "web"), PassedSocket(4, "unknown")]
    assert kept == [(3, False), (4, False)]
    assert environ == {"HOME": "/"}


@pytest.mark.parametrize(
    "environ",
    [{}, {"LISTEN_PID": "1", "LISTEN_FDS": "1"}, {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "many"}],
)
def test_no_passed_sockets(environ):
    """Variables that are absent, broken or meant for another process give no descriptors."""
    assert passed_sockets(dict(environ)) == []
