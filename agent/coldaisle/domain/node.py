"""The node as people see it: what the page, `/api/v1/node` and `collect` on a terminal show."""

from typing import NamedTuple

from coldaisle.domain.gpu import GpuIdentity, GpuState
from coldaisle.domain.health import Health, State


class GpuView(NamedTuple):
    """One GPU in one row. None means absent, never zero.

    Units: degrees Celsius, watts, hertz, bytes, ratios 0 to 1. `reasons` are the active clock-event reasons by name.
    """

    identity: GpuIdentity
    state: GpuState
    reason: str = ""
    temperature: float | None = None
    memory_temperature: float | None = None
    margin: float | None = None
    power: float | None = None
    power_limit: float | None = None
    utilization: float | None = None
    sm_active: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    sm_clock: float | None = None
    sm_clock_max: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None
    reasons: tuple[str, ...] = ()


class FilesystemView(NamedTuple):
    """One mount. Bytes and inodes; None means absent (a hung mount)."""

    mountpoint: str
    device: str
    type: str
    size: float | None
    available: float | None
    read_only: bool
    problem: str = ""


class NodeView(NamedTuple):
    """Everything that the page shows, as of one tick."""

    hostname: str
    product: str
    """DMI product name or the simulated one; empty if unknown."""
    driver_version: str
    cuda_version: str
    nvml_version: str
    simulated: bool
    """The GPUs are simulated or replayed from a recording: none of them is in this machine."""
    mode: str
    """`observe`, `advise` or `enforce`."""
    released: bool
    expected_gpus: int | None
    gpus: tuple[GpuView, ...]
    filesystems: tuple[FilesystemView, ...]
    sources: tuple[Health, ...]
    """Sources first, then collectors."""
    state: State
    reason: str
    sampled_at: float | None
    """Unix seconds of the last complete tick."""


class HealthReport(NamedTuple):
    """What `/health` says. `serving` is False (HTTP 503) only when sampling has stopped or no GPU source works."""

    state: State
    serving: bool
    reason: str
    parts: tuple[Health, ...]
