"""Builds what people see (`NodeView`, `HealthReport`) from readings and verdicts. Pure."""

from collections.abc import Sequence

from coldaisle.domain.health import Health, State
from coldaisle.domain.node import GpuView, HealthReport
from coldaisle.metrics.gpu_fields import reasons_of
from coldaisle.metrics.gpu_table import GpuRecord, GpuTable


def gpu_view(table: GpuTable, record: GpuRecord, now: float) -> GpuView:
    """Return one GPU's row; what is absent is None."""

    def get(key: str) -> float | None:
        return table.value(record, key, now)

    mask = get("clock_event_reasons")
    return GpuView(
        identity=record.identity,
        state=record.state,
        reason=record.reason,
        temperature=get("temperature_core"),
        memory_temperature=get("temperature_memory"),
        margin=get("margin"),
        power=get("power"),
        power_limit=get("power_limit_enforced"),
        utilization=get("utilization"),
        sm_active=get("sm_active"),
        tensor_active=get("pipe_tensor"),
        dram_active=get("dram_active"),
        sm_clock=get("clock_sm"),
        sm_clock_max=get("clock_max_sm"),
        memory_used=get("memory_used"),
        memory_total=get("memory_size"),
        reasons=() if mask is None else reasons_of(int(mask)),
    )


def report(
    parts: Sequence[Health], *, sampling: bool, gpu_source_works: bool, gpu_source_starts: bool, released: bool
) -> HealthReport:
    """Judge the node from its parts.

    One bad part makes it degraded. It is failed, and `/health` answers 503, only when sampling has stopped or no GPU
    source works or is about to (DESIGN section 6); a released node has been asked to let go, which is no failure.
    """
    wanted = [part for part in parts if part.state is not State.OFF]
    if not sampling:
        return HealthReport(State.FAILED, False, "sampling has stopped", tuple(parts))
    starting = [part.name for part in wanted if part.state is State.STARTING]
    bad = [part for part in wanted if part.state in (State.FAILED, State.DEGRADED)]
    reason = "; ".join(f"{part.name}: {part.reason}" for part in bad[:4])
    if len(bad) > 4:
        reason += f"; and {len(bad) - 4} more"
    if not gpu_source_works and not gpu_source_starts and not released:
        return HealthReport(State.FAILED, False, reason or "no GPU source works", tuple(parts))
    if bad:
        return HealthReport(State.DEGRADED, True, reason, tuple(parts))
    if starting:
        return HealthReport(State.STARTING, True, f"waiting for {', '.join(starting)}", tuple(parts))
    return HealthReport(State.OK, True, "vendor handles are released" if released else "", tuple(parts))
