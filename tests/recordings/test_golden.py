"""Recorded machines, byte for byte: recording -> real driver -> table -> collector -> exposition.

UPDATE_GOLDEN=1 rewrites the goldens; the diff is the review.
"""

import os
from pathlib import Path

import pytest

from coldaisle.collectors.gpu import GpuCollector
from coldaisle.domain.clock import FakeClock
from coldaisle.domain.gpu import GpuIdentity, GpuState
from coldaisle.drivers.nvml.flight import CALLS, FlightRecorder, create
from coldaisle.drivers.nvml.worker import GpuWorker
from coldaisle.drivers.recording import ReplayNvml
from coldaisle.metrics.exposition import Renderer
from coldaisle.metrics.gpu_table import GpuTable

HERE = Path(__file__).parent
RECORDING = HERE / "h200-mixed.jsonl.gz"
# Seconds into the recording, within each of its labelled loads (h200-mixed.labels.jsonl).
MOMENTS = {"idle": 35, "compute_bf16_matmul": 115, "memory_copy": 155, "train_starved_200ms": 210}


class Machine:
    """A recorded one-GPU machine, sampled tick by tick on a fake clock."""

    def __init__(self):
        self.clock = FakeClock()
        self.table = GpuTable()
        fd = create()
        self.worker = GpuWorker(
            ReplayNvml(str(RECORDING), self.clock), 0, FlightRecorder(fd, CALLS), self.take, self.fail, self.clock.monotonic
        )
        os.close(fd)
        self.collector = GpuCollector(self.table, lambda: (1, "config"), lambda: 1)
        self.renderer = Renderer(self.collector.families)
        self.failures = []

    def fail(self, error):
        self.failures.append(error)

    def take(self, message):
        if message["k"] == "gpu":
            self.table.identify(GpuIdentity(index=0, **message["id"]), message["sources"])
            self.table.set_state(0, GpuState.OK)
        elif message["k"] == "f":
            self.table.update(0, message["c"], message["t"], message["v"])
            for reason, count in message.get("d", {}).items():
                self.table.drop("nvml", reason, count)
        else:
            self.failures.append(message)

    def run(self, seconds):
        for tick in range(seconds):
            self.worker.turn(tick)
            result = self.collector.collect(self.clock.monotonic())
            self.clock.advance(1)
        return self.renderer.render(result.samples).text()


@pytest.mark.parametrize(("label", "moment"), MOMENTS.items())
def test_exposition_is_byte_for_byte(label, moment):
    """The same recording gives the same page, to the byte."""
    machine = Machine()
    text = machine.run(moment)
    assert machine.failures == []
    golden = HERE / f"h200-mixed.{label}.metrics"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_bytes(text)
    assert text == golden.read_bytes()


def value(text, start, label=b""):
    return next(float(line.rsplit(b" ", 1)[1]) for line in text.splitlines() if line.startswith(start) and label in line)


def test_the_loads_look_like_themselves():
    """The recorded loads are what an expert would expect: TDP under matmul, memory under copy, nothing when idle."""
    pages = {label: Machine().run(moment) for label, moment in MOMENTS.items()}
    assert value(pages["compute_bf16_matmul"], b"dgx_gpu_pipe_active_ratio", b'pipe="tensor"') > 0.9
    assert 680 < value(pages["compute_bf16_matmul"], b"dgx_gpu_power_average_watts{") < 705
    assert value(pages["memory_copy"], b"dgx_gpu_dram_active_ratio{") > 0.8
    assert value(pages["idle"], b"dgx_gpu_power_average_watts{") < 130
    assert value(pages["compute_bf16_matmul"], b"dgx_gpu_clock_event_active", b'reason="sw_power_cap"') == 1
