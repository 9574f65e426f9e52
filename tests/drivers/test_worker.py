"""A GPU's thread in the vendor child: whatever its GPU answers, it lives and says what is wrong."""

import os
import socket
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fake_nvml import FakeNvml, error

from coldaisle.domain.clock import FakeClock
from coldaisle.drivers.nvml.child import VendorChild
from coldaisle.drivers.nvml.flight import CALLS, FlightRecorder, create
from coldaisle.drivers.nvml.worker import REOPEN_TICKS, GpuWorker

GOOD = {"nvmlDeviceGetHandleByIndex": "handle", "nvmlDeviceGetUUID": "GPU-1", "nvmlDeviceGetTemperature": 50}


def recorder():
    fd = create()
    page = FlightRecorder(fd, CALLS)
    os.close(fd)
    return page


class Rig:
    def __init__(self, **answers):
        self.sent = []
        self.fatal = []
        self.vendor = FakeNvml({**GOOD, **answers})
        self.worker = GpuWorker(self.vendor, 0, recorder(), self.sent.append, self.fatal.append, FakeClock().monotonic)

    def turn(self, tick):
        self.sent.clear()
        self.worker.turn(tick)
        return [message["k"] for message in self.sent]


def boom():
    raise TypeError("a struct of another version")


def test_unexpected_error_is_told_and_survived():
    """An error that nobody foresaw marks the GPU and is told once; the GPU is opened again and comes back."""
    rig = Rig()
    assert "f" in rig.turn(0)
    rig.vendor.answers["nvmlDeviceGetTemperature"] = boom
    assert rig.turn(1) == ["down"]
    assert "TypeError while reading GPU 0: a struct of another version" in rig.sent[0]["message"]
    assert rig.turn(2) == []
    rig.vendor.answers["nvmlDeviceGetTemperature"] = 51
    assert rig.turn(1 + REOPEN_TICKS)[:2] == ["gpu", "f"]


@pytest.mark.parametrize("lie", ["nan", "61", [61], object()])
def test_an_answer_that_is_no_number_costs_that_value_alone(lie):
    """A value of the wrong type is dropped and counted; everything else of the frame is there."""
    rig = Rig(nvmlDeviceGetTemperature=lie, nvmlDeviceGetPowerUsage=87_000)
    rig.turn(0)
    frame = next(message for message in rig.sent if message["k"] == "f" and message["c"] == "fast")
    assert frame["d"] == {"malformed": 1}
    assert frame["a"]["temperature_core"] == "impossible"
    assert 87.0 in frame["v"]


def test_lost_is_down_and_uninitialised_is_fatal():
    """15 concerns this GPU, 1 the whole library."""
    rig = Rig(nvmlDeviceGetTemperature=error(15))
    assert rig.turn(0) == ["down"]
    assert rig.sent[0]["slug"] == "lost"
    rig = Rig(nvmlDeviceGetTemperature=error(1))
    rig.turn(0)
    assert [failure.code for failure in rig.fatal] == [1]


@pytest.mark.parametrize(("answer", "slug"), [(boom, "transient"), (error(9), "driver_absent"), (error(18), "driver_mismatch")])
def test_library_thread_never_ends_in_silence(answer, slug):
    """Whatever ends the library's thread is reported, so that the supervisor can start a fresh child."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        vendor = FakeNvml({"nvmlSystemGetDriverVersion": answer})
        child = VendorChild(vendor, theirs, recorder())
        child._run_library()
        packet = ours.recv(4096)
    assert f'"slug":"{slug}"'.encode() in packet
    assert b'"k":"fatal"' in packet
