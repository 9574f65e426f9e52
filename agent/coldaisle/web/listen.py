"""Listening sockets, made before anything else starts so that a port in use is said at once."""

import errno
import socket
from collections.abc import Iterable
from pathlib import Path

from coldaisle.config.quantities import split_listen_address
from coldaisle.domain.errors import ColdaisleError


class AddressError(ColdaisleError):
    """An address cannot be listened on."""

    remedy = "stop what holds it (`ss -ltnp`), or choose another with --web.listen-address"


def bind(addresses: Iterable[str], procfs: Path = Path("/proc")) -> list[socket.socket]:
    """Return a listening socket for each `host:port`, `[ipv6]:port` or `:port` (every interface, both families).

    Args:
        addresses: where to listen; port 0 lets the kernel choose.
        procfs: where to look for the process that holds a port.

    Raises:
        AddressError: one of them cannot be had; none is left open then.
    """
    sockets: list[socket.socket] = []
    try:
        for address in addresses:
            sockets.append(_bind_one(address, procfs))  # noqa: PERF401  those made so far are closed when one fails
    except BaseException:
        for made in sockets:
            made.close()
        raise
    return sockets


def _bind_one(address: str, procfs: Path) -> socket.socket:
    try:
        host, port = split_listen_address(address)
    except ValueError as error:
        raise AddressError(f"the listen address {error}", remedy="mend --web.listen-address") from None
    family, target = _resolve(address, host, port)
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not host else 1)
        listener.bind(target)
        listener.listen(socket.SOMAXCONN)
    except OSError as error:
        listener.close()
        raise _explained(address, port, error, procfs) from None
    return listener


def _resolve(address: str, host: str, port: int) -> tuple[int, tuple[str, int]]:
    if not host:
        return (socket.AF_INET6, ("::", port)) if _has_ipv6() else (socket.AF_INET, ("0.0.0.0", port))  # noqa: S104  what ":PORT" means
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise AddressError(
            f"cannot listen on {address}: the host name is not known ({error})",
            remedy="give an address of this machine with --web.listen-address",
        ) from None
    # IPv4 first, as Go's net.Listen does: a name such as localhost means both.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return found[0][0], found[0][4]  # type: ignore[return-value]  # INET and INET6 addresses begin alike


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True


def _explained(address: str, port: int, error: OSError, procfs: Path) -> AddressError:
    if error.errno == errno.EADDRINUSE:
        holder = _holder(port, procfs)
        return AddressError(f"cannot listen on {address}: the address is in use{f' by {holder}' if holder else ''}")
    if error.errno == errno.EACCES:
        return AddressError(
            f"cannot listen on {address}: permission denied",
            remedy="choose a port from 1024 on, or give the service CAP_NET_BIND_SERVICE",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return AddressError(
            f"cannot listen on {address}: this machine does not have that address",
            remedy="give an address that `ip address` shows with --web.listen-address",
        )
    return AddressError(f"cannot listen on {address}: {error.strerror}")


def _holder(port: int, procfs: Path) -> str:
    """Name the process that listens on the port, as far as this user may see it."""
    links = {f"socket:[{inode}]" for inode in _listening_inodes(port, procfs)}
    for process in procfs.iterdir() if links else ():
        if not process.name.isdigit():
            continue
        try:
            if any(str(descriptor.readlink()) in links for descriptor in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (process {process.name})"
        except OSError:
            continue  # another user's, or gone
    return ""


def _listening_inodes(port: int, procfs: Path) -> set[str]:
    inodes = set()
    for name in ("tcp", "tcp6"):
        try:
            rows = (procfs / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    return inodes
