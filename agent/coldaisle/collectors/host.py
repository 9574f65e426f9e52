"""The host around the GPUs: CPU, load, memory, swap, pressure, network interfaces."""

from collections.abc import Callable, Mapping
from typing import Protocol

from coldaisle.collectors.boundary import Result
from coldaisle.metrics.families import Family, Kind, Sample


def _gauge(name: str, help: str, unit: str = "", *labels: str) -> Family:
    return Family(name, Kind.GAUGE, help, labels, unit)


def _counter(name: str, help: str, unit: str = "", *labels: str) -> Family:
    return Family(name, Kind.COUNTER, help, labels, unit)


CPU = _counter(
    "dgx_host_cpu_seconds_total", "CPU time of all cores together, by mode; the modes add up.", "seconds", "mode"
)
CPUS = _gauge("dgx_host_cpus", "Logical CPUs.")
LOAD = _gauge("dgx_host_load", "Runnable and uninterruptible tasks, averaged over a window.", "", "window")
MEMORY_SIZE = _gauge("dgx_host_memory_size_bytes", "Main memory in all.", "bytes")
MEMORY_AVAILABLE = _gauge(
    "dgx_host_memory_available_bytes", "Main memory that can be had without swapping (the kernel's estimate).", "bytes"
)
MEMORY = _gauge(
    "dgx_host_memory_bytes", "Main memory by state: used, free, buffers, cached; they add up.", "bytes", "state"
)
SWAP_SIZE = _gauge("dgx_host_swap_size_bytes", "Swap space in all.", "bytes")
SWAP_USED = _gauge("dgx_host_swap_used_bytes", "Swap space in use.", "bytes")
SWAP_MOVED = _counter(
    "dgx_host_swap_moved_bytes_total", "Memory moved from (in) or to (out) swap.", "bytes", "direction"
)
PRESSURE = _counter(
    "dgx_host_pressure_seconds_total",
    "Time in which some or all (full) tasks waited for a resource (PSI); absent where the kernel does not count it.",
    "seconds",
    "resource",
    "kind",
)
OPEN_FILES = _gauge("dgx_host_open_files", "File handles in use on the whole host.")
OPEN_FILES_LIMIT = _gauge("dgx_host_open_files_limit", "File handles that the kernel allows; absent if unlimited.")
BOOT_TIME = _gauge("dgx_host_boot_timestamp_seconds", "Unix time at which the host was started.", "seconds")
NETWORK_UP = _gauge("dgx_network_up", "1 if the interface's link works, 0 if not; absent if unknown.", "", "interface")
NETWORK_INFO = Family(
    "dgx_network_info",
    Kind.INFO,
    "What an interface is: physical, bond or infiniband (IPoIB: without the RDMA traffic of the port).",
    ("interface", "kind"),
)


def _traffic(what: str, help: str, unit: str = "") -> Family:
    return _counter(f"dgx_network_{what}_total", help, unit, "interface")


RECEIVE_BYTES = _traffic("receive_bytes", "Bytes received by an interface.", "bytes")
TRANSMIT_BYTES = _traffic("transmit_bytes", "Bytes sent by an interface.", "bytes")
RECEIVE_PACKETS = _traffic("receive_packets", "Packets received by an interface.")
TRANSMIT_PACKETS = _traffic("transmit_packets", "Packets sent by an interface.")
RECEIVE_ERRORS = _traffic("receive_errors", "Packets received broken.")
TRANSMIT_ERRORS = _traffic("transmit_errors", "Packets that could not be sent.")
RECEIVE_DROPS = _traffic("receive_drops", "Packets received and thrown away, mostly for want of buffers.")
TRANSMIT_DROPS = _traffic("transmit_drops", "Packets thrown away before they were sent.")
_TRAFFIC = {
    "receive_bytes": RECEIVE_BYTES,
    "transmit_bytes": TRANSMIT_BYTES,
    "receive_packets": RECEIVE_PACKETS,
    "transmit_packets": TRANSMIT_PACKETS,
    "receive_errors": RECEIVE_ERRORS,
    "transmit_errors": TRANSMIT_ERRORS,
    "receive_drops": RECEIVE_DROPS,
    "transmit_drops": TRANSMIT_DROPS,
}
_MEMORY = {
    "size": (MEMORY_SIZE, ()),
    "available": (MEMORY_AVAILABLE, ()),
    "used": (MEMORY, ("used",)),
    "free": (MEMORY, ("free",)),
    "buffers": (MEMORY, ("buffers",)),
    "cached": (MEMORY, ("cached",)),
}
_SWAP = {
    "size": (SWAP_SIZE, ()),
    "used": (SWAP_USED, ()),
    "in": (SWAP_MOVED, ("in",)),
    "out": (SWAP_MOVED, ("out",)),
}
_WINDOWS = (("1m",), ("5m",), ("15m",))


class Interface(Protocol):
    """One network interface; `counters` are named as their families are (`receive_bytes`, ...)."""

    @property
    def kind(self) -> str: ...  # noqa: D102  physical, bond or infiniband
    @property
    def up(self) -> bool | None: ...  # noqa: D102  None if the driver does not say
    @property
    def counters(self) -> Mapping[str, int]: ...  # noqa: D102  since the interface exists


class Reading(Protocol):
    """The host as last read; None is absent."""

    @property
    def cpu_seconds(self) -> Mapping[str, float] | None: ...  # noqa: D102
    @property
    def cpus(self) -> int | None: ...  # noqa: D102
    @property
    def load(self) -> tuple[float, float, float] | None: ...  # noqa: D102
    @property
    def memory(self) -> Mapping[str, int] | None: ...  # noqa: D102  bytes: size, available and the states
    @property
    def swap(self) -> Mapping[str, int] | None: ...  # noqa: D102  bytes: size, used, in, out
    @property
    def pressure(self) -> Mapping[tuple[str, str], float] | None: ...  # noqa: D102
    @property
    def network(self) -> Mapping[str, Interface] | None: ...  # noqa: D102
    @property
    def open_files(self) -> int | None: ...  # noqa: D102
    @property
    def open_files_limit(self) -> int | None: ...  # noqa: D102
    @property
    def boot_time(self) -> float | None: ...  # noqa: D102
    @property
    def problem(self) -> str:
        """Which parts could not be read and why; empty when all were."""


class HostCollector:
    """Publishes what the host driver reads.

    Args:
        read: reads what is due this tick and returns the host as last read.
    """

    name = "host"
    families = (
        CPU,
        CPUS,
        LOAD,
        MEMORY_SIZE,
        MEMORY_AVAILABLE,
        MEMORY,
        SWAP_SIZE,
        SWAP_USED,
        SWAP_MOVED,
        PRESSURE,
        OPEN_FILES,
        OPEN_FILES_LIMIT,
        BOOT_TIME,
        NETWORK_UP,
        NETWORK_INFO,
        *_TRAFFIC.values(),
    )

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read
        self._modes: dict[str, tuple[str]] = {}

    def collect(self, now: float) -> Result:  # noqa: ARG002  the driver counts ticks
        """Return the samples of the host; degraded while a part of it cannot be read."""
        host = self._read()
        samples = [
            Sample(family, (), value)
            for family, value in (
                (CPUS, host.cpus),
                (OPEN_FILES, host.open_files),
                (OPEN_FILES_LIMIT, host.open_files_limit),
                (BOOT_TIME, host.boot_time),
            )
            if value is not None
        ]
        modes = self._modes
        for mode, seconds in (host.cpu_seconds or {}).items():
            samples.append(Sample(CPU, modes.setdefault(mode, (mode,)), seconds))
        samples.extend(Sample(LOAD, window, load) for window, load in zip(_WINDOWS, host.load or (), strict=False))
        for places, values in ((_MEMORY, host.memory), (_SWAP, host.swap)):
            samples.extend(Sample(*places[name], value) for name, value in (values or {}).items())
        samples.extend(Sample(PRESSURE, labels, seconds) for labels, seconds in (host.pressure or {}).items())
        for name, interface in (host.network or {}).items():
            self._add_interface(samples, name, interface)
        return Result(samples, host.problem)

    @staticmethod
    def _add_interface(samples: list[Sample], name: str, interface: Interface) -> None:
        labels = (name,)
        samples.append(Sample(NETWORK_INFO, (name, interface.kind), 1))
        if interface.up is not None:
            samples.append(Sample(NETWORK_UP, labels, int(interface.up)))
        samples.extend(Sample(_TRAFFIC[counter], labels, value) for counter, value in interface.counters.items())
