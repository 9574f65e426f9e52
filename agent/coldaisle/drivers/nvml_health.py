"""Verdicts on the NVML library and on single GPUs, for `/health`. Pure."""

from collections.abc import Sequence

from coldaisle.domain.gpu import GpuState
from coldaisle.domain.health import Health, State
from coldaisle.metrics.gpu_table import GpuRecord


def library_health(
    *,
    released: bool,
    failure: tuple[str, str, str] | None,
    running: bool,
    stuck: Sequence[int],
    gpus: int | None,
    known: int,
    last: float | None,
) -> Health:
    """Verdict on the library.

    Args:
        released: handles are closed on request.
        failure: slug, message and remedy of what keeps it from working.
        running: the child has initialised the library.
        stuck: children that even SIGKILL did not end.
        gpus: how many GPUs the driver enumerates.
        known: how many of them have answered or failed once.
        last: monotonic time of the last frame.
    """
    if released:
        return Health("nvml", State.OFF, "released on request", "run `coldaisle resume` when the work is done")
    if failure is not None:
        return Health("nvml", State.FAILED, failure[1], failure[2], last)
    if not running or known < (gpus or 0):
        # Between the library's answer and the GPUs' own there is neither success nor failure to report.
        reason = f"{known} of {gpus} GPUs have answered" if running else "the vendor child is starting"
        return Health("nvml", State.STARTING, reason, "", last)
    if stuck:
        reason = f"vendor child {stuck[0]} is stuck in the driver and cannot be killed"
        return Health("nvml", State.DEGRADED, reason, "drain and reboot the node", last)
    if gpus == 0:
        return Health("nvml", State.FAILED, "the driver sees no GPU", "check `lspci -d 10de:` and `dmesg`", last)
    return Health("nvml", State.OK, last_success=last)


def gpu_health(index: int, record: GpuRecord) -> Health:
    """Verdict on one GPU."""
    last = max((taken_at for taken_at, _ in record.rows.values()), default=None)
    name = f"gpu{index}"
    if record.state is GpuState.OK:
        return Health(name, State.OK, last_success=last)
    if record.state is GpuState.STARTING:
        return Health(name, State.STARTING, "has not answered yet")
    state = State.DEGRADED if record.state is GpuState.LATE else State.FAILED
    return Health(name, state, f"{record.state.value}: {record.reason}", record.remedy, last)
