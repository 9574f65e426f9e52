"""Reading one GPU: the best supported query wins, and nothing broken is ever published."""

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fake_nvml import FakeNvml, error

from coldaisle.domain.clock import FakeClock
from coldaisle.domain.errors import DeviceLost, DriverMismatch, ResetRequired
from coldaisle.drivers.nvml.gpu_reader import GpuReader
from coldaisle.metrics.gpu_fields import POSITION


def reader_of(vendor, clock=None, wanted=None):
    clock = clock or FakeClock()
    return GpuReader(vendor, "handle", clock.monotonic, lambda name, function, *args: function(*args), wanted)


def value(frame, key):
    return frame.values[POSITION[key][1]]


def test_base_units():
    """Vendor units become base units: milliwatts, megahertz, percent and nanoseconds are gone."""
    vendor = FakeNvml(
        {
            "nvmlDeviceGetTemperature": 61,
            ("nvmlDeviceGetClockInfo", (1,)): 1980,
            "nvmlDeviceGetUtilizationRates": type("U", (), {"gpu": 99, "memory": 12})(),
        },
        {186: (0, 1, 698_500), 74: (0, 3, 2_500_000_000)},
    )
    frame = reader_of(vendor).read("fast")
    assert value(frame, "temperature_core") == 61
    assert value(frame, "clock_sm") == 1.98e9
    assert value(frame, "utilization") == pytest.approx(0.99)
    assert value(frame, "power") == pytest.approx(698.5)
    assert value(frame, "clock_event_seconds_sw_power_cap") == pytest.approx(2.5)


def test_signed_fields_are_read_as_signed():
    """T.Limit offsets are signed: -2 must not become 4294967294."""
    frame = reader_of(FakeNvml(fields={194: (0, 5, -2)})).read("static")
    assert value(frame, "margin_threshold_slowdown") == -2


def test_fallback_within_the_same_collection():
    """Where a field id is unsupported the older call answers, in the very first frame."""
    vendor = FakeNvml({"nvmlDeviceGetPowerUsage": 87_176})
    reader = reader_of(vendor)
    assert value(reader.read("fast"), "power") == pytest.approx(87.176)
    assert reader.sources()["power"] == "nvml"


def test_unsupported_is_not_asked_again():
    """What this GPU does not have costs a call once, not every second."""
    vendor = FakeNvml({"nvmlDeviceGetTemperature": 50})
    reader = reader_of(vendor)
    reader.read("fast")
    vendor.calls.clear()
    frame = reader.read("fast")
    assert vendor.calls == ["nvmlDeviceGetTemperature"]
    assert frame.absent["power"] == "not_supported"


@pytest.mark.parametrize(
    ("raw", "reason"), [(0, "impossible"), (255, "impossible"), (2147483632, "sentinel"), (math.nan, "nan")]
)
def test_broken_temperatures_are_absent_and_counted(raw, reason):
    """0, 255 and blanks are what a broken sensor says; none is published."""
    frame = reader_of(FakeNvml({"nvmlDeviceGetTemperature": raw})).read("fast")
    assert value(frame, "temperature_core") is None
    assert frame.absent["temperature_core"] == reason
    assert frame.dropped == {reason: 1}


def test_sentinel_in_a_wide_counter():
    """A vendor's blank inside a wide counter looks like a number: it is refused as a sentinel."""
    frame = reader_of(FakeNvml(fields={3: (0, 3, 0x7FFFFFF0)})).read("medium")
    assert value(frame, "ecc_corrected_volatile") is None
    assert frame.dropped == {"sentinel": 1}


def test_transient_errors_keep_the_query():
    """A time-out makes one value absent and is asked again next time."""
    vendor = FakeNvml({"nvmlDeviceGetTemperature": error(10)})
    reader = reader_of(vendor)
    first = reader.read("fast")
    assert (value(first, "temperature_core"), first.absent["temperature_core"]) == (None, "transient")
    vendor.answers["nvmlDeviceGetTemperature"] = 55
    assert value(reader.read("fast"), "temperature_core") == 55


@pytest.mark.parametrize(("code", "expected"), [(15, DeviceLost), (16, ResetRequired), (18, DriverMismatch)])
def test_fatal_codes_void_the_collection(code, expected):
    """A lost GPU's whole collection is void, wherever the code shows up."""
    with pytest.raises(expected):
        reader_of(FakeNvml({"nvmlDeviceGetTemperature": error(code)})).read("fast")
    with pytest.raises(expected):
        reader_of(FakeNvml(fields={186: (code, 0, 0)})).read("fast")


def test_gpm_needs_two_samples():
    """GPM is a rate: the first collection has none, the second has the value over the time between."""
    clock = FakeClock()
    reader = reader_of(FakeNvml(gpm={2: (0, 93.5), 10: (0, math.nan)}), clock)
    assert value(reader.read("fast"), "sm_active") is None
    clock.advance(1)
    frame = reader.read("fast")
    assert value(frame, "sm_active") == pytest.approx(0.935)
    assert value(frame, "dram_active") is None
    assert frame.absent["dram_active"] == "nan"
    assert frame.dropped == {"nan": 1}


def test_gpm_absent_on_ampere():
    """Without GPM no profiling quantity is invented, and nothing is asked."""
    reader = reader_of(FakeNvml({"nvmlDeviceGetTemperature": 40}))
    frame = reader.read("fast")
    assert frame.absent["sm_active"] == "not_supported"
    assert "sm_active" not in reader.sources()


def test_only_wanted_keys_are_read():
    """A key that the configuration excludes is not asked for."""
    vendor = FakeNvml({"nvmlDeviceGetTemperature": 40, "nvmlDeviceGetPowerUsage": 1000})
    reader_of(vendor, wanted=frozenset({"temperature_core"})).read("fast")
    assert vendor.calls == ["nvmlDeviceGetTemperature"]
