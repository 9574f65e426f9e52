import os
import socket
from pathlib import Path

import pytest

from coldaisle.web import listen
from coldaisle.web.listen import AddressError, bind


@pytest.fixture
def bound():
    made = []

    def make(*addresses):
        made.extend(bind(addresses))
        return made

    yield make
    for listener in made:
        listener.close()


@pytest.mark.parametrize("address", [":0", "127.0.0.1:0", "localhost:0", "[::1]:0"])
def test_forms_of_addresses(bound, address):
    """Each of exporter-toolkit's forms listens; a port alone and a name are reached over IPv4 too."""
    (listener,) = bound(address)
    host = "::1" if address.startswith("[") else "127.0.0.1"
    with socket.create_connection((host, listener.getsockname()[1]), timeout=5) as client:
        assert client.getpeername()[1] == listener.getsockname()[1]


def test_a_port_alone_serves_both_families(bound):
    """`:PORT` is reached over IPv6 as well."""
    (listener,) = bound(":0")
    with socket.create_connection(("::1", listener.getsockname()[1]), timeout=5) as client:
        assert client.family is socket.AF_INET6


def test_without_ipv6_a_port_alone_is_ipv4(bound, monkeypatch):
    """A kernel without IPv6 is served on all IPv4 addresses."""
    monkeypatch.setattr(listen, "_has_ipv6", lambda: False)
    (listener,) = bound(":0")
    assert listener.getsockname()[0] == "0.0.0.0"


def test_a_port_in_use_names_its_holder(bound):
    """The error says which address, who holds it, and what to do; sockets made before are closed."""
    (first,) = bound("127.0.0.1:0")
    port = first.getsockname()[1]
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(AddressError) as caught:
        bind(["127.0.0.1:0", f"127.0.0.1:{port}"])
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert f"cannot listen on 127.0.0.1:{port}: the address is in use by " in str(caught.value)
    assert f"(process {os.getpid()})" in str(caught.value)
    assert "--web.listen-address" in caught.value.remedy


def test_an_unreadable_proc_names_nobody(bound, tmp_path):
    """Without the right to look, the error is the same but for the holder."""
    (first,) = bound("127.0.0.1:0")
    with pytest.raises(AddressError, match=r"the address is in use$"):
        bind([f"127.0.0.1:{first.getsockname()[1]}"], procfs=tmp_path)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("10980", "has no port"),
        ("127.0.0.1:70000", "has no port from 0 to 65535"),
        ("::1:80", "IPv6 address without brackets"),
        ("no-such-host.invalid:80", "host name is not known"),
        ("192.0.2.1:0", "this machine does not have that address"),
    ],
)
def test_wrong_addresses(address, message):
    """Each wrong address is one clear line with a remedy."""
    with pytest.raises(AddressError, match=message) as caught:
        bind([address])
    assert "\n" not in str(caught.value)
    assert caught.value.remedy
