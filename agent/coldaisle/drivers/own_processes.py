"""What our own processes cost, from /proc/PID: CPU, memory, threads, open files."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

REFRESH_SECONDS = 5.0
PROPORTIONAL_SECONDS = 30.0
"""smaps_rollup walks every page of a process: milliseconds, under its memory lock."""


class ProcessReading(NamedTuple):
    """One process of ours. Seconds and bytes; None is absent (not ours to read)."""

    cpu_seconds: float
    resident: int
    threads: int
    start_time: float | None
    """Unix seconds."""
    open_files: int | None = None
    proportional: int | None = None


class _Known(NamedTuple):
    started: int
    """Start time in clock ticks since boot: tells a process from a later one with its id."""
    taken_at: float
    proportional: int | None


class OwnProcesses:
    """Reads our processes, at most every five seconds.

    Args:
        pids: the processes by role (`main`, `nvml`, ...); None where one does not run.
        procfs: where /proc is.
        ticks_per_second, page_size: the kernel's units.
    """

    def __init__(
        self,
        pids: Callable[[], Mapping[str, int | None]],
        *,
        procfs: Path = Path("/proc"),
        ticks_per_second: int | None = None,
        page_size: int | None = None,
    ) -> None:
        self._pids = pids
        self._procfs = procfs
        self._ticks = ticks_per_second or os.sysconf("SC_CLK_TCK")
        self._page = page_size or os.sysconf("SC_PAGE_SIZE")
        self._boot_time: float | None = None
        self._readings: dict[str, ProcessReading] = {}
        self._read_pids: dict[str, int | None] = {}
        self._read_at = float("-inf")
        self._known: dict[int, _Known] = {}

    def read(self, now: float) -> Mapping[str, ProcessReading]:
        """Return each running process by role; one that has ended is missing."""
        pids = dict(self._pids())
        if pids != self._read_pids or now - self._read_at >= REFRESH_SECONDS:
            self._read_pids, self._read_at = pids, now
            if self._boot_time is None:
                self._boot_time = self._read_boot_time()
            self._known = {pid: known for pid, known in self._known.items() if pid in pids.values()}
            readings = {role: self._process(pid, now) for role, pid in pids.items() if pid is not None}
            self._readings = {role: reading for role, reading in readings.items() if reading is not None}
        return self._readings

    def _process(self, pid: int, now: float) -> ProcessReading | None:
        directory = self._procfs / str(pid)
        try:
            stat = (directory / "stat").read_text(errors="replace")
            # The name, in parentheses, may hold anything: fields are counted from behind it (proc(5), field 3 is 0).
            fields = stat.rpartition(")")[2].split()
            if fields[0] in "ZX":
                return None
            started = int(fields[19])
            return ProcessReading(
                (int(fields[11]) + int(fields[12])) / self._ticks,
                int(fields[21]) * self._page,
                int(fields[17]),
                None if self._boot_time is None else self._boot_time + started / self._ticks,
                self._open_files(directory),
                self._proportional(pid, started, directory, now),
            )
        except (OSError, ValueError, IndexError):
            return None  # it ended, before or while we read

    @staticmethod
    def _open_files(directory: Path) -> int | None:
        try:
            return len(os.listdir(directory / "fd"))  # noqa: PTH208  counts names only, no object for each
        except PermissionError:
            return None  # runs as another user

    def _proportional(self, pid: int, started: int, directory: Path, now: float) -> int | None:
        known = self._known.get(pid)
        if known is None or known.started != started or now - known.taken_at >= PROPORTIONAL_SECONDS:
            known = self._known[pid] = _Known(started, now, _pss(directory / "smaps_rollup"))
        return known.proportional

    def _read_boot_time(self) -> float | None:
        try:
            for line in (self._procfs / "stat").read_text().splitlines():
                if line.startswith("btime "):
                    return float(line.split()[1])
        except (OSError, ValueError, IndexError):
            pass
        return None


def _pss(path: Path) -> int | None:
    """Return proportional memory in bytes; None where the kernel has no such file or does not let us read it."""
    try:
        for line in path.read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None
