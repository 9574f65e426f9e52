"""The node's verdict: one bad part degrades it; 503 is kept for "nothing works"."""

import pytest

from coldaisle.app.view import gpu_view, report
from coldaisle.domain.gpu import GpuIdentity, GpuState
from coldaisle.domain.health import Health, State
from coldaisle.metrics.gpu_fields import BY_CADENCE, POSITION
from coldaisle.metrics.gpu_table import GpuTable

OK = Health("nvml", State.OK)


def judge(*parts, sampling=True, works=True, starts=False, released=False):
    return report(
        parts, sampling=sampling, gpu_source_works=works, gpu_source_starts=starts, released=released
    )


def test_all_well():
    """Parts that are ok or switched off make a node that is ok."""
    assert judge(OK, Health("dcgm", State.OFF))[:3] == (State.OK, True, "")


def test_one_lost_gpu_is_degraded_not_failed():
    """One lost GPU of eight: degraded, still serving, with its reason."""
    verdict = judge(OK, Health("gpu3", State.FAILED, "lost: fell off the bus"))
    assert verdict[:3] == (State.DEGRADED, True, "gpu3: lost: fell off the bus")


def test_no_gpu_source_is_failed():
    """No GPU source at all: failed, not serving, and the reason is the source's own."""
    verdict = judge(Health("nvml", State.FAILED, "driver not loaded"), works=False)
    assert verdict[:3] == (State.FAILED, False, "nvml: driver not loaded")


def test_released_is_no_failure():
    """A node that was asked to let go is not failed."""
    assert judge(Health("nvml", State.OFF, "released on request"), works=False, released=True).serving


def test_starting_is_not_failed():
    """Before the first answer the node is starting, not failed."""
    assert judge(Health("nvml", State.STARTING), works=False, starts=True)[:2] == (State.STARTING, True)


def test_a_starting_collector_is_no_gpu_source():
    """While other parts still start, a node whose GPU source has failed is failed already."""
    parts = [Health("nvml", State.FAILED, "no driver"), Health("kernel-log", State.STARTING)]
    assert judge(*parts, works=False)[:2] == (State.FAILED, False)


def test_sampling_stopped():
    """A tick that no longer comes outweighs everything."""
    assert judge(OK, sampling=False)[:3] == (State.FAILED, False, "sampling has stopped")


def test_long_lists_are_cut():
    """Eight bad GPUs make a reason that fits a line."""
    verdict = judge(*(Health(f"gpu{i}", State.FAILED, "lost") for i in range(8)))
    assert verdict.reason.endswith("and 4 more")


@pytest.mark.parametrize("state", [GpuState.LOST, GpuState.HUNG])
def test_view_of_an_unusable_gpu_has_no_numbers(state):
    """A row of a lost GPU shows who it is and why, and not one number."""
    table = GpuTable()
    record = table.identify(GpuIdentity(3, "GPU-3", "NVIDIA H200"), {})
    table.set_state(3, GpuState.OK)
    row = [1.0] * len(BY_CADENCE["fast"])
    row[POSITION["clock_event_reasons"][1]] = 0x24
    table.update(3, "fast", 10.0, row)
    view = gpu_view(table, record, 10.5)
    assert view.temperature == 1.0
    assert view.reasons == ("sw_power_cap", "sw_thermal")
    table.set_state(3, state, "gone")
    view = gpu_view(table, record, 10.5)
    assert (view.identity.uuid, view.reason) == ("GPU-3", "gone")
    assert all(getattr(view, name) is None for name in ("temperature", "power", "utilization", "sm_active"))
