"""systemd's service protocol: sd_notify(3) and sd_listen_fds(3). Does nothing where there is no systemd."""

import os
import socket
import time
from collections.abc import MutableMapping
from typing import NamedTuple

# sd_listen_fds(3): passed descriptors begin here.
_FIRST_FD = 3


class PassedSocket(NamedTuple):
    """A descriptor that systemd opened for the service; `name` is its FileDescriptorName=, else `unknown`."""

    fd: int
    name: str


class Notifier:
    """Tells the service manager how the agent is. A message that cannot be delivered is dropped.

    Args:
        environ: where NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID are read.
    """

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # "@" stands for the NUL byte of an abstract socket; vsock and others are for virtual machines' managers.
        self._address = "\0" + address[1:] if address.startswith("@") else address if address.startswith("/") else ""
        usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(os.getpid()))
        self.watchdog_interval = int(usec) / 1e6 if usec.isdigit() and pid == str(os.getpid()) else None
        """Seconds after which systemd ends a silent service, None if it does not watch; notify at half of it."""

    def send(self, **fields: str) -> bool:
        """Send one datagram of `NAME=value` lines; False if there is nobody to tell."""
        if not self._address:
            return False
        message = "\n".join(f"{name}={value}" for name, value in fields.items()).encode()
        try:
            with socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            ) as sender:
                sender.sendto(message, self._address)
        except OSError:
            return False
        return True

    def ready(self, status: str) -> bool:
        """Start-up, or a reload, is complete."""
        return self.send(READY="1", STATUS=_line(status))

    def status(self, status: str) -> bool:
        """Say in one line, for `systemctl status`, how things are."""
        return self.send(STATUS=_line(status))

    def watchdog(self) -> bool:
        """The service is alive."""
        return self.send(WATCHDOG="1")

    def reloading(self) -> bool:
        """A reload begins; `ready` ends it. Type=notify-reload wants the time (microseconds of CLOCK_MONOTONIC)."""
        return self.send(RELOADING="1", MONOTONIC_USEC=str(time.monotonic_ns() // 1000))

    def stopping(self) -> bool:
        """The service is ending."""
        return self.send(STOPPING="1", STATUS="stopping")


def _line(text: str) -> str:
    return " ".join(text.split())


def passed_sockets(environ: MutableMapping[str, str] = os.environ) -> list[PassedSocket]:
    """Return the sockets that systemd passed to this process, and take the variables away from its children."""
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    names = environ.pop("LISTEN_FDNAMES", "").split(":")
    if pid != str(os.getpid()) or not count.isdigit():
        return []
    passed = []
    for index in range(int(count)):
        fd = _FIRST_FD + index
        name = names[index] if index < len(names) and names[index] else "unknown"
        os.set_inheritable(fd, False)
        passed.append(PassedSocket(fd, name))
    return passed
