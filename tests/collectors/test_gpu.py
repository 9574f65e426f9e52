"""The GPU collector: complete for those that answer, silent about what is not known."""

import pytest

from coldaisle.collectors import gpu as module
from coldaisle.collectors.gpu import GpuCollector
from coldaisle.domain.gpu import GpuIdentity, GpuState
from coldaisle.metrics import gpu_families
from coldaisle.metrics.gpu_fields import BY_CADENCE, POSITION
from coldaisle.metrics.gpu_table import GpuTable


class Rig:
    def __init__(self, gpus=2, expected=(None, "")):
        self.table = GpuTable()
        self.seen = gpus
        self.collector = GpuCollector(self.table, lambda: expected, lambda: self.seen)
        for index in range(gpus):
            self.table.identify(GpuIdentity(index, f"GPU-{index}", "NVIDIA H200"), {"pcie_receive": "gpm", "sm_active": "gpm"})
            self.table.set_state(index, GpuState.OK)

    def frame(self, index, taken_at, **values):
        row = [None] * len(BY_CADENCE["fast"])
        for key, value in values.items():
            row[POSITION[key][1]] = value
        self.table.update(index, "fast", taken_at, row)

    def samples(self, now):
        self.result = self.collector.collect(now)
        return {(sample.family.name, sample.labels): sample.value for sample in self.result.samples}


def test_values_carry_gpu_and_uuid():
    """Every catalogue value is published under its family, with index and UUID."""
    rig = Rig()
    rig.frame(0, 10.0, temperature_core=61, sm_active=0.97)
    samples = rig.samples(10.1)
    assert samples["dgx_gpu_temperature_celsius", ("0", "GPU-0", "core")] == 61
    assert samples["dgx_gpu_sm_active_ratio", ("0", "GPU-0")] == 0.97
    assert ("dgx_gpu_sm_active_ratio", ("1", "GPU-1")) not in samples


def test_stale_values_vanish():
    """After three intervals a silent GPU's values are gone, while up and state still speak."""
    rig = Rig()
    rig.frame(0, 10.0, temperature_core=61)
    assert ("dgx_gpu_temperature_celsius", ("0", "GPU-0", "core")) in rig.samples(13.0)
    samples = rig.samples(13.1)
    assert ("dgx_gpu_temperature_celsius", ("0", "GPU-0", "core")) not in samples
    assert samples["dgx_gpu_state", ("0", "GPU-0", "ok")] == 1


def test_lost_gpu_keeps_its_counters_and_says_so():
    """A lost GPU has no values, is not up, and the collector is partial with the reason."""
    rig = Rig()
    rig.frame(0, 10.0, temperature_core=61)
    rig.samples(10.1)
    rig.table.set_state(0, GpuState.LOST, "answered NVML error 15", "drain the node")
    samples = rig.samples(10.2)
    assert samples["dgx_gpu_up", ("0", "GPU-0")] == 0
    assert samples["dgx_gpu_state", ("0", "GPU-0", "lost")] == 1
    assert not any(name == "dgx_gpu_temperature_celsius" for name, _ in samples)
    assert ("dgx_gpu_temperature_distribution_celsius", ("0", "GPU-0", "core")) in samples
    assert "GPU 0 lost" in rig.result.problem
    assert rig.result.action == "drain the node"


def test_peaks_are_counted_once_a_frame():
    """A frame feeds the histogram once, however often it is published."""
    rig = Rig()
    rig.frame(0, 10.0, temperature_core=91)
    rig.samples(10.1)
    rig.samples(10.2)
    rig.frame(0, 11.0, temperature_core=30)
    histogram = rig.samples(11.1)["dgx_gpu_temperature_distribution_celsius", ("0", "GPU-0", "core")]
    assert sum(histogram.counts) == 2
    assert histogram.counts[histogram.edges.index(95.0)] == 1
    assert histogram.sum == 121


def test_time_in_reason():
    """Reasons are integrated between frames; a gap is credited to nobody."""
    rig = Rig()
    rig.frame(0, 10.0, clock_event_reasons=0x4)
    rig.samples(10)
    rig.frame(0, 11.0, clock_event_reasons=0x24)
    rig.samples(11)
    rig.frame(0, 100.0, clock_event_reasons=0x20)
    samples = rig.samples(100)
    name = "dgx_gpu_clock_event_observed_seconds_total"
    assert samples[name, ("0", "GPU-0", "sw_power_cap")] == 1
    assert samples[name, ("0", "GPU-0", "sw_thermal")] == 1
    assert samples["dgx_gpu_clock_event_active", ("0", "GPU-0", "sw_power_cap")] == 0
    assert samples["dgx_gpu_clock_event_active", ("0", "GPU-0", "sw_thermal")] == 1


def test_pcie_bytes_integrate_rates():
    """Interval means times elapsed time give a counter that any scrape interval can use."""
    rig = Rig()
    rig.frame(0, 10.0, pcie_receive=5e9)
    rig.samples(10)
    rig.frame(0, 12.0, pcie_receive=1e9)
    assert rig.samples(12)["dgx_gpu_pcie_data_bytes_total", ("0", "GPU-0", "receive")] == pytest.approx(2e9)


def test_fewer_than_expected():
    """Four of eight seen is a finding, not a detail."""
    rig = Rig(4, (8, "dmi"))
    samples = rig.samples(10)
    assert samples["dgx_gpu_expected", ("dmi",)] == 8
    assert samples["dgx_gpu_seen", ()] == 4
    assert "4 of 8 GPUs" in rig.result.problem


def test_replaced_gpu_starts_anew():
    """Another UUID at the same index inherits nothing."""
    rig = Rig(1)
    rig.frame(0, 10.0, temperature_core=61)
    rig.samples(10)
    rig.table.identify(GpuIdentity(0, "GPU-new"), {})
    samples = rig.samples(10.5)
    assert not any(labels[:2] == ("0", "GPU-0") for _, labels in samples)
    assert ("dgx_gpu_temperature_celsius", ("0", "GPU-new", "core")) not in samples


def test_every_family_is_declared():
    """What the collector emits is among the families it declares."""
    rig = Rig(1, (8, "config"))
    for cadence, fields in BY_CADENCE.items():
        rig.table.update(0, cadence, 10.0, [1] * len(fields))
    result = rig.collector.collect(10)
    assert {sample.family for sample in result.samples} <= set(rig.collector.families)
    assert gpu_families.TEMPERATURE in {sample.family for sample in result.samples}
    assert len(rig.collector.families) == len({family.name for family in rig.collector.families})
    assert module.INFO in rig.collector.families
