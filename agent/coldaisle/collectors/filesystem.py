"""Filesystems: space, inodes, whether they can be written and whether they answer."""

from collections.abc import Callable, Sequence
from typing import Protocol

from coldaisle.collectors.boundary import Result
from coldaisle.domain.node import FilesystemView
from coldaisle.metrics.families import Family, Kind, Sample

_LABELS = ("mountpoint", "device")
SIZE = Family("dgx_filesystem_size_bytes", Kind.GAUGE, "Size of a filesystem, from statvfs.", _LABELS, "bytes")
AVAILABLE = Family(
    "dgx_filesystem_available_bytes",
    Kind.GAUGE,
    "Space that an unprivileged process can still use, from statvfs.",
    _LABELS,
    "bytes",
)
USED = Family("dgx_filesystem_used_bytes", Kind.GAUGE, "Space in use, from statvfs.", _LABELS, "bytes")
INODES = Family(
    "dgx_filesystem_inodes",
    Kind.GAUGE,
    "Inodes in all, from statvfs; absent where the filesystem does not count them.",
    _LABELS,
)
INODES_FREE = Family("dgx_filesystem_inodes_free", Kind.GAUGE, "Inodes left, from statvfs.", _LABELS)
READ_ONLY = Family(
    "dgx_filesystem_read_only",
    Kind.GAUGE,
    "1 if nothing can be written: mounted so, or made so by the kernel after an error.",
    _LABELS,
)
UP = Family(
    "dgx_filesystem_up",
    Kind.GAUGE,
    "1 if the filesystem answers statvfs, 0 while that hangs or fails.",
    _LABELS,
)
INFO = Family(
    "dgx_filesystem_info",
    Kind.INFO,
    "Type of a filesystem, to join with the other series by mountpoint and device.",
    (*_LABELS, "fstype"),
)


class Reading(Protocol):
    """What a driver knows of one filesystem. Bytes and inodes; None is absent."""

    @property
    def mountpoint(self) -> str: ...  # noqa: D102  the words are those of mount(8)
    @property
    def device(self) -> str: ...  # noqa: D102
    @property
    def type(self) -> str: ...  # noqa: D102
    @property
    def read_only(self) -> bool: ...  # noqa: D102
    @property
    def up(self) -> bool | None:
        """None before the first answer or missed deadline."""

    @property
    def size(self) -> int | None: ...  # noqa: D102
    @property
    def available(self) -> int | None: ...  # noqa: D102
    @property
    def used(self) -> int | None: ...  # noqa: D102
    @property
    def inodes(self) -> int | None: ...  # noqa: D102
    @property
    def inodes_free(self) -> int | None: ...  # noqa: D102
    @property
    def problem(self) -> str:
        """Why it does not answer; empty when it does."""

    def view(self) -> FilesystemView:
        """Return what the page shows of it."""
        ...


class FilesystemCollector:
    """Publishes what the driver's threads have read.

    Args:
        read: picks up every filesystem's last answer; never blocks.
        problem: says why the list of mounts is incomplete, empty if it is not.
    """

    name = "filesystem"
    families = (SIZE, AVAILABLE, USED, INODES, INODES_FREE, READ_ONLY, UP, INFO)

    def __init__(self, read: Callable[[float], Sequence[Reading]], problem: Callable[[], str] = str) -> None:
        self._read = read
        self._problem = problem
        self._readings: Sequence[Reading] = ()
        self._labels: dict[tuple[str, str, str], tuple[tuple[str, str], tuple[str, str, str]]] = {}

    def views(self) -> tuple[FilesystemView, ...]:
        """Return the filesystems of the last collection, for the page."""
        return tuple(reading.view() for reading in self._readings)

    def collect(self, now: float) -> Result:
        """Return the samples of all filesystems; degraded while one of them does not answer."""
        self._readings = self._read(now)
        samples: list[Sample] = []
        problems = [problem] if (problem := self._problem()) else []
        hung = False
        for reading in self._readings:
            self._add(samples, reading)
            if reading.problem:
                hung = True
                problems.append(f"{reading.mountpoint} ({reading.device}): {reading.problem}")
        action = "check the server or disk behind it; `umount --lazy` takes it out of the way" if hung else ""
        return Result(samples, "; ".join(problems), action)

    def _add(self, samples: list[Sample], reading: Reading) -> None:
        key = (reading.mountpoint, reading.device, reading.type)
        cached = self._labels.get(key)
        if cached is None:
            if len(self._labels) > 1000:  # mounts come and go for months
                self._labels.clear()
            cached = self._labels[key] = (key[:2], key)
        labels, info = cached
        samples.append(Sample(INFO, info, 1))
        samples.append(Sample(READ_ONLY, labels, int(reading.read_only)))
        for family, value in (
            (UP, reading.up),
            (SIZE, reading.size),
            (AVAILABLE, reading.available),
            (USED, reading.used),
            (INODES, reading.inodes),
            (INODES_FREE, reading.inodes_free),
        ):
            if value is not None:
                samples.append(Sample(family, labels, int(value)))
