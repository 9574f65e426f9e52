"""The kernel log as a source of records: /dev/kmsg, or a file or FIFO in its format.

Every record of this boot is delivered once: a position says how far it was read, sequence numbers say what was lost.
A source that cannot be read is in a state with a reason and a remedy, and is tried again with growing pauses.
"""

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from coldaisle.reader.records import Record, Splitter, parse

BUDGET = 512
"""Records per call of `read`: a flood must not keep the process from its other duties."""
CHUNK = 65_536
"""Bytes per read of a file."""
HEAD = 64
"""Bytes at the start of a file that tell it from another one at the same path (inode numbers are reused)."""
_RETRY_FIRST, _RETRY_MAX = 1.0, 60.0
_SHORT_BUFFER, _LONG_BUFFER = 8_192, 65_536


class Batch(NamedTuple):
    """What one `read` gave. `drained` says that there was nothing more to read at that moment."""

    records: list[Record]
    drained: bool


class KernelLog(ABC):
    """What device and file have in common: state, counters, retries, gaps.

    `state` is `ok`, `missing`, `denied` or `failed`; `reason` and `remedy` are sentences for a person, empty when ok.
    """

    name = "kernel-log"
    selectable = False
    """Whether `fd` can be waited for; otherwise the caller polls."""

    def __init__(self, path: str, read: Callable[[int, int], bytes] = os.read) -> None:
        self.path = path
        self.fd: int | None = None
        self.opens = 0
        """Successful opens: the same descriptor number may stand for another open file."""
        self.state = "missing"
        self.reason = "not opened yet"
        self.remedy = ""
        self.lines = 0
        self.lost = 0
        self.malformed = 0
        self.foreign = 0
        """Records of user space, which may not speak for the kernel."""
        self._read = read
        self._last: int | None = None
        self._retry_at = 0.0
        self._pause = _RETRY_FIRST

    @abstractmethod
    def position(self) -> dict[str, Any]:
        """Return where reading stands, for `resume`; empty before the first record."""

    @abstractmethod
    def resume(self, position: dict[str, Any]) -> None:
        """Go on after `position`; one that does not fit (another boot, another file) is ignored."""

    def read(self, now: float) -> Batch:
        """Return up to about `BUDGET` new records; opens the source if need be. `now` is monotonic seconds."""
        if self.fd is None and not self._open(now):
            return Batch([], drained=True)
        try:
            return self._read_open()
        except OSError as error:
            self._fail(error, now)
            return Batch([], drained=True)

    def close(self) -> None:
        """Close the source; `read` opens it again."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    @abstractmethod
    def _read_open(self) -> Batch:
        """Return what can be read of the open source."""

    def _opened(self) -> None:  # noqa: B027  a source with nothing to prepare leaves it empty
        """Prepare after a successful open; may raise OSError."""

    def _open(self, now: float) -> bool:
        if now < self._retry_at:
            return False
        try:
            self.fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._opened()
        except OSError as error:
            self._fail(error, now)
            return False
        self.opens += 1
        self.state, self.reason, self.remedy = "ok", "", ""
        return True

    def _fail(self, error: OSError, now: float) -> None:
        self.close()
        if error.errno in (errno.EACCES, errno.EPERM):
            self.state = "denied"
            self.remedy = (
                "give the service CAP_SYSLOG (AmbientCapabilities=, without ProtectKernelLogs=) or set"
                " kernel.dmesg_restrict=0, and let it read the file"
            )
        elif error.errno == errno.ENOENT:
            self.state = "missing"
            self.remedy = "check the path; PrivateDevices=yes and containers hide /dev/kmsg"
        else:
            self.state = "failed"
            self.remedy = "the reader keeps trying; if it stays so, report it"
        self.reason = f"cannot read {self.path}: {error.strerror or error}"
        self._retry_at = now + self._pause
        self._pause = min(self._pause * 2, _RETRY_MAX)

    def _advance(self, record: Record) -> None:
        """Count the record and the gap before it."""
        if self._last is not None and record.sequence > self._last + 1:
            self.lost += record.sequence - self._last - 1
        self._last = record.sequence
        self.lines += 1
        self._pause = _RETRY_FIRST


class KmsgDevice(KernelLog):
    """/dev/kmsg: one record a read. Opening starts at the oldest record of the ring, so re-opening repeats it.

    Args:
        path: the device.
        boot_id: of this boot; sequence numbers mean nothing in another.
        read: os.read or a fake.
    """

    selectable = True

    def __init__(self, path: str, boot_id: str, read: Callable[[int, int], bytes] = os.read) -> None:
        super().__init__(path, read)
        self._boot_id = boot_id
        self._size = _SHORT_BUFFER
        self.overruns = 0

    def position(self) -> dict[str, Any]:
        """Return boot and sequence number of the last record."""
        return {} if self._last is None else {"boot_id": self._boot_id, "seq": self._last}

    def resume(self, position: dict[str, Any]) -> None:
        """Skip what was read before in this boot."""
        sequence = position.get("seq")
        if self._boot_id and position.get("boot_id") == self._boot_id and isinstance(sequence, int):
            self._last = max(sequence, self._last or 0)

    def _read_open(self) -> Batch:
        fd = self.fd
        if fd is None:
            return Batch([], drained=True)
        records: list[Record] = []
        for _ in range(BUDGET):
            try:
                raw = self._read(fd, self._size)
            except BlockingIOError:
                return Batch(records, drained=True)
            except OSError as error:
                if error.errno == errno.EPIPE:  # the ring overtook us; the next record's number says by how much
                    self.overruns += 1
                elif error.errno == errno.EINVAL and self._size < _LONG_BUFFER:
                    # Too short a buffer: the kernel passes over the record, which then counts as lost.
                    self._size = _LONG_BUFFER
                elif records:
                    return Batch(records, drained=False)  # deliver these first; the error will come again
                else:
                    raise
                continue
            if not raw:
                if records:
                    break  # deliver these first, as above
                raise OSError(errno.EIO, "the device says end of file")
            self._accept(raw, records)
        return Batch(records, drained=False)

    def _accept(self, raw: bytes, records: list[Record]) -> None:
        record = parse(raw)
        if record is None:
            self.malformed += 1
        elif self._last is None or record.sequence > self._last:
            self._advance(record)
            if record.facility == 0:
                records.append(record)
            else:
                self.foreign += 1


class KmsgFile(KernelLog):
    """A regular file that grows, or a FIFO, in the same format: for simulation, tests and recorded logs.

    Survives that the file comes late, is truncated, or is replaced by another; a sequence number that falls back means
    that the writer started anew. User space may write such files, so facilities are not judged.
    """

    def __init__(self, path: str, read: Callable[[int, int], bytes] = os.read) -> None:
        super().__init__(path, read)
        self._splitter = Splitter()
        self._offset = 0
        self._head = b""
        self._fifo = False
        self._inode = (0, 0)

    def position(self) -> dict[str, Any]:
        """Return the offset after the last whole record, with what tells the file from others."""
        if self._fifo or not self._head:
            return {}
        return {"head": self._head.hex(), "offset": self._offset - self._splitter.unfinished, "seq": self._last}

    def resume(self, position: dict[str, Any]) -> None:
        """Go on at the offset if the file still starts as it did."""
        head, offset, sequence = position.get("head"), position.get("offset"), position.get("seq")
        if not isinstance(head, str) or not isinstance(offset, int) or offset < 0:
            return
        try:
            self._head = bytes.fromhex(head)[:HEAD]
        except ValueError:
            return
        self._offset = offset
        self._last = sequence if isinstance(sequence, int) else None

    def _opened(self) -> None:
        fd = self.fd
        if fd is None:
            return
        info = os.fstat(fd)
        self._fifo = stat.S_ISFIFO(info.st_mode)
        if not self._fifo and not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "not a kernel-log device, regular file or FIFO")
        self._inode = (info.st_dev, info.st_ino)
        self._splitter.reset()
        if self._fifo:
            self._restart()
        elif not self._rewind_if_rewritten(fd, info.st_size):
            os.lseek(fd, self._offset, os.SEEK_SET)

    def _rewind_if_rewritten(self, fd: int, size: int) -> bool:
        """Start over in a file that was truncated, or filled anew past our offset."""
        if size >= self._offset and (size == self._offset or os.pread(fd, len(self._head), 0) == self._head):
            return False
        os.lseek(fd, 0, os.SEEK_SET)
        self._restart()
        return True

    def _restart(self) -> None:
        self._offset = 0
        self._head = b""
        self._splitter.reset()

    def _read_open(self) -> Batch:
        fd = self.fd
        if fd is None:
            return Batch([], drained=True)
        if not self._fifo:
            self._rewind_if_rewritten(fd, os.fstat(fd).st_size)
        try:
            data = self._read(fd, CHUNK)
        except BlockingIOError:
            data = b""
        if not data:
            self._follow_replacement()
            return Batch([], drained=True)
        if not self._fifo and len(self._head) < HEAD:
            self._head = os.pread(fd, HEAD, 0)[: self._offset + len(data)]
        self._offset += len(data)
        before = self._splitter.malformed
        records = self._splitter.feed(data)
        self.malformed += self._splitter.malformed - before
        for record in records:
            if self._last is not None and record.sequence <= self._last:
                self._last = None
            self._advance(record)
        return Batch(records, drained=len(data) < CHUNK)

    def _follow_replacement(self) -> None:
        """Close a file that is drained and no longer the one at the path; the next read opens the new one."""
        if self._fifo:
            return
        try:
            info = os.stat(self.path)  # noqa: PTH116  pathlib costs the reader half a MiB
        except FileNotFoundError:
            return  # removed: its writer may still append to it, and a new one is noticed when it comes
        if (info.st_dev, info.st_ino) != self._inode:
            self.close()
            self._retry_at = 0.0


def open_source(path: str, boot_id_path: str = "/proc/sys/kernel/random/boot_id") -> KernelLog:
    """Return the source for `path` by what is there; a path with nothing at it yet is one that may come late."""
    try:
        device = stat.S_ISCHR(os.stat(path).st_mode)  # noqa: PTH116  as above
    except OSError:
        device = path == "/dev/kmsg"
    if not device:
        return KmsgFile(path)
    try:
        with open(boot_id_path, encoding="ascii") as file:  # noqa: PTH123  as above
            boot_id = file.read().strip()
    except OSError:
        boot_id = ""
    return KmsgDevice(path, boot_id)
