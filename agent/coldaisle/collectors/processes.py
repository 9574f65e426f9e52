"""What the agent's own processes cost the node."""

import platform
from collections.abc import Callable, Mapping
from typing import Protocol

from coldaisle import __version__
from coldaisle.collectors.boundary import Result
from coldaisle.metrics.families import Family, Kind, Sample

_LABELS = ("process",)
CPU = Family(
    "coldaisle_process_cpu_seconds_total", Kind.COUNTER, "CPU time of a process of the agent.", _LABELS, "seconds"
)
RESIDENT = Family(
    "coldaisle_process_resident_memory_bytes",
    Kind.GAUGE,
    "Memory of a process of the agent, pages shared with others counted in full.",
    _LABELS,
    "bytes",
)
PROPORTIONAL = Family(
    "coldaisle_process_proportional_memory_bytes",
    Kind.GAUGE,
    "Memory of a process of the agent, shared pages divided by their users (PSS): these add up. Every 30 s.",
    _LABELS,
    "bytes",
)
THREADS = Family("coldaisle_process_threads", Kind.GAUGE, "Threads of a process of the agent.", _LABELS)
OPEN_FILES = Family(
    "coldaisle_process_open_fds", Kind.GAUGE, "File descriptors that a process of the agent has open.", _LABELS
)
START_TIME = Family(
    "coldaisle_process_start_time_seconds",
    Kind.GAUGE,
    "Unix time at which a process of the agent was started.",
    _LABELS,
    "seconds",
)
BUILD_INFO = Family(
    "coldaisle_build_info", Kind.INFO, "Version of the agent and of the Python it runs on.", ("version", "python")
)


class Reading(Protocol):
    """What one process costs. Seconds and bytes; None is absent."""

    @property
    def cpu_seconds(self) -> float: ...  # noqa: D102  units above
    @property
    def resident(self) -> int: ...  # noqa: D102
    @property
    def threads(self) -> int: ...  # noqa: D102
    @property
    def start_time(self) -> float | None: ...  # noqa: D102
    @property
    def open_files(self) -> int | None: ...  # noqa: D102
    @property
    def proportional(self) -> int | None: ...  # noqa: D102


class ProcessCollector:
    """Publishes what each running process of the agent costs.

    Args:
        read: returns the processes by role; one that does not run is missing.
        version, python: what `coldaisle_build_info` says.
    """

    name = "processes"
    families = (CPU, RESIDENT, PROPORTIONAL, THREADS, OPEN_FILES, START_TIME, BUILD_INFO)

    def __init__(
        self,
        read: Callable[[float], Mapping[str, Reading]],
        *,
        version: str = __version__,
        python: str = platform.python_version(),
    ) -> None:
        self._read = read
        self._build = Sample(BUILD_INFO, (version, python), 1)
        self._labels: dict[str, tuple[str]] = {}

    def collect(self, now: float) -> Result:
        """Return the samples of all running processes of the agent."""
        samples = [self._build]
        for role, process in self._read(now).items():
            labels = self._labels.setdefault(role, (role,))
            samples.extend(
                Sample(family, labels, value)
                for family, value in (
                    (CPU, process.cpu_seconds),
                    (RESIDENT, process.resident),
                    (PROPORTIONAL, process.proportional),
                    (THREADS, process.threads),
                    (OPEN_FILES, process.open_files),
                    (START_TIME, process.start_time),
                )
                if value is not None
            )
        return Result(samples)
