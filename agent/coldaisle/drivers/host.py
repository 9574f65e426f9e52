"""The host around the GPUs: CPU, load, memory, swap, pressure, network interfaces, open files.

psutil reads what it covers; pressure (PSI) and the interface classes are files it does not know. What is dear or slow
to change is read less often (`_EVERY`): /proc/stat alone costs the kernel a millisecond with 224 cores.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

_CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_PRESSURE = ("cpu", "memory", "io", "irq")
_NO_LIMIT = 2**62
"""file-max is LONG_MAX on machines that set none: that is a sentinel, not a limit."""
_INFINIBAND = "32"
"""ARPHRD_INFINIBAND of linux/if_arp.h."""

# Ticks between reads. Numbers are microseconds on a small machine; a DGX pays more for /proc/stat (cores) and
# /proc/net/dev (a container's interfaces are listed too).
_EVERY = {
    "load": 1,  # 1
    "pressure": 1,  # 40
    "network": 1,  # 40
    "memory": 5,  # 35
    "cpu": 5,  # 20
    "swap": 10,  # 80
    "files": 10,  # 10
    "boot": 300,  # 20; moves only when the wall clock is set
}
_RECLASSIFY = 60
"""Ticks after which interfaces are classified again even if their names are the same."""


class Psutil(Protocol):
    """What is used of psutil."""

    def cpu_times(self) -> Any:
        """Seconds by mode, all CPUs together."""

    def cpu_count(self) -> int | None:
        """Logical CPUs."""

    def virtual_memory(self) -> Any:
        """Bytes by state."""

    def swap_memory(self) -> Any:
        """Bytes of swap and bytes moved."""

    def net_io_counters(self, pernic: bool, nowrap: bool) -> Mapping[str, Any]:
        """Counters by interface."""
        ...

    def boot_time(self) -> float:
        """Unix seconds."""
        ...


class Interface(NamedTuple):
    """One network interface. `kind` is physical, bond or infiniband; `counters` count since it exists."""

    kind: str
    up: bool | None
    counters: Mapping[str, int]


class HostReading(NamedTuple):
    """The host as last read. A part that cannot be read is None, or missing from its mapping."""

    cpu_seconds: Mapping[str, float] | None = None
    cpus: int | None = None
    load: tuple[float, float, float] | None = None
    memory: Mapping[str, int] | None = None
    """Bytes. used, free, buffers and cached add up to size; available overlaps them."""
    swap: Mapping[str, int] | None = None
    """Bytes: size, used, and moved in and out since boot."""
    pressure: Mapping[tuple[str, str], float] | None = None
    """(resource, `some` or `full`) -> seconds."""
    network: Mapping[str, Interface] | None = None
    open_files: int | None = None
    open_files_limit: int | None = None
    boot_time: float | None = None
    problem: str = ""


class Host:
    """Reads the host, each part at its own cadence; one `read` is one tick.

    Args:
        psutil: the module, or something like it.
        procfs, sysfs: where /proc and /sys are, for what psutil does not read.
        getloadavg: 1, 5 and 15 minute load.
    """

    def __init__(
        self,
        psutil: Psutil,
        *,
        procfs: Path = Path("/proc"),
        sysfs: Path = Path("/sys"),
        getloadavg: Callable[[], tuple[float, float, float]] = os.getloadavg,
    ) -> None:
        self._psutil = psutil
        self._procfs = procfs
        self._net = sysfs / "class/net"
        self._getloadavg = getloadavg
        self._tick = 0
        self._values: dict[str, Any] = {}
        self._problems: dict[str, str] = {}
        self._seen: frozenset[str] = frozenset()
        self._kinds: dict[str, str] = {}
        self._operstates: dict[str, bool | None] = {}
        self._pressure_files: tuple[tuple[str, str], ...] | None = None
        self._parts: tuple[tuple[str, int, Callable[[], Any]], ...] = (
            ("load", _EVERY["load"], self._getloadavg),
            ("pressure", _EVERY["pressure"], self._read_pressure),
            ("network", _EVERY["network"], self._read_network),
            ("memory", _EVERY["memory"], self._read_memory),
            ("cpu", _EVERY["cpu"], self._read_cpu),
            ("swap", _EVERY["swap"], self._read_swap),
            ("files", _EVERY["files"], self._read_files),
            ("boot", _EVERY["boot"], self._psutil.boot_time),
        )

    def read(self) -> HostReading:
        """Read what is due and return everything as last read. A part that fails is absent until it works again."""
        tick, values = self._tick, self._values
        for place, (name, every, reader) in enumerate(self._parts):
            # The places spread the slow parts over different ticks.
            if tick == 0 or (tick + place) % every == 0:
                try:
                    values[name] = reader()
                    self._problems.pop(name, None)
                except Exception as error:  # noqa: BLE001  psutil raises what it meets; one part must not stop the rest
                    values[name] = None
                    self._problems[name] = f"cannot read {name}: {error}"
        self._tick += 1
        cpu, files = values["cpu"] or (None, None), values["files"] or (None, None)
        return HostReading(
            cpu[0],
            cpu[1],
            values["load"],
            values["memory"],
            values["swap"],
            values["pressure"],
            values["network"],
            files[0],
            files[1],
            values["boot"],
            "; ".join(self._problems.values()),
        )

    def _read_cpu(self) -> tuple[dict[str, float], int | None]:
        times = self._psutil.cpu_times()
        # The kernel counts guest time in user and nice as well: left out, so that the modes add up.
        seconds = {mode: float(value) for mode in _CPU_MODES if (value := getattr(times, mode, None)) is not None}
        for guest, mode in (("guest", "user"), ("guest_nice", "nice")):
            if mode in seconds and (value := getattr(times, guest, None)):
                seconds[mode] = max(0.0, seconds[mode] - value)
                seconds[guest] = float(value)
        return seconds, self._psutil.cpu_count()

    def _read_memory(self) -> dict[str, int]:
        memory = self._psutil.virtual_memory()
        buffers, cached = memory.buffers, memory.cached
        return {
            "size": memory.total,
            "available": memory.available,
            "used": max(0, memory.total - memory.free - buffers - cached),
            "free": memory.free,
            "buffers": buffers,
            "cached": cached,
        }

    def _read_swap(self) -> dict[str, int]:
        swap = self._psutil.swap_memory()
        return {"size": swap.total, "used": swap.used, "in": swap.sin, "out": swap.sout}

    def _read_files(self) -> tuple[int, int | None]:
        allocated, _, limit = (self._procfs / "sys/fs/file-nr").read_text().split()[:3]
        return int(allocated), int(limit) if int(limit) < _NO_LIMIT else None

    def _read_pressure(self) -> dict[tuple[str, str], float]:
        """Stall seconds. Empty on a kernel without PSI, or with it turned off (RHEL 8's default): that is no fault."""
        if self._pressure_files is None:
            directory = self._procfs / "pressure"
            self._pressure_files = tuple(
                (name, str(directory / name)) for name in _PRESSURE if (directory / name).exists()
            )
        stalled = {}
        for resource, path in self._pressure_files:
            try:
                with open(path, "rb", 0) as file:  # noqa: PTH123  every tick: half the cost of Path.read_bytes
                    lines = file.read(1024).splitlines()
            except OSError:
                continue
            for line in lines:
                kind, _, rest = line.decode("ascii", "replace").partition(" ")
                # `full` of cpu is not defined for the whole system: the kernel writes 0 for old readers.
                if kind in ("some", "full") and (resource, kind) != ("cpu", "full"):
                    stalled[resource, kind] = int(rest.rpartition("total=")[2]) / 1e6
        return stalled

    def _read_network(self) -> dict[str, Interface]:
        # nowrap=False: the kernel's counters have 64 bits, and psutil's bookkeeping would cost more than the read.
        counters = self._psutil.net_io_counters(pernic=True, nowrap=False)
        names = frozenset(counters)
        if names != self._seen or self._tick % _RECLASSIFY == 0:
            self._seen = names
            self._kinds = {name: kind for name in sorted(names) if (kind := self._kind(name))}
            self._operstates = {}
        if not self._operstates or self._tick % 10 == 0:
            self._operstates = {name: self._is_up(name) for name in self._kinds}
        return {
            name: Interface(kind, self._operstates[name], _counters(counters[name]))
            for name, kind in self._kinds.items()
        }

    def _kind(self, name: str) -> str:
        """Return what an interface is, empty for what only exists in software (loopback, veth, bridges, ...)."""
        directory = self._net / name
        if (directory / "bonding").exists():
            return "bond"
        if (directory / "device").exists():
            return "infiniband" if _first_line(directory / "type") == _INFINIBAND else "physical"
        return "infiniband" if _first_line(directory / "type") == _INFINIBAND else ""

    def _is_up(self, name: str) -> bool | None:
        return {"up": True, "down": False, "lowerlayerdown": False, "dormant": False, "notpresent": False}.get(
            _first_line(self._net / name / "operstate")
        )


def _counters(nic: Any) -> dict[str, int]:
    return {
        "receive_bytes": nic.bytes_recv,
        "transmit_bytes": nic.bytes_sent,
        "receive_packets": nic.packets_recv,
        "transmit_packets": nic.packets_sent,
        "receive_errors": nic.errin,
        "transmit_errors": nic.errout,
        "receive_drops": nic.dropin,
        "transmit_drops": nic.dropout,
    }


def _first_line(path: Path) -> str:
    try:
        return path.read_text().partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError):
        return ""
