"""The physics: calibrated on a real H200, and bounded whatever happens to it."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldaisle.simulation.physics import HW_THERMAL, INLET, POWER_BRAKE, POWER_CAP, SW_THERMAL, Gpu, step
from coldaisle.simulation.profiles import A100, B200, H100, H200, PROFILES
from coldaisle.simulation.workloads import BY_NAME, LOADS, OFF, Schedule

RECORDED = json.loads(Path(__file__).with_name("h200-loads.json").read_text())["loads"]


def run(gpu, seconds, each=lambda _: None):
    for _ in range(round(seconds * 10)):
        step(gpu, 0.1)
        each(gpu)


def means(load):
    """Power, core temperature, clock, activities of a load over 22 s after 4 s, as the recording was averaged."""
    gpu = Gpu(H200)
    gpu.load = BY_NAME["idle"]
    run(gpu, 60)
    gpu.load = BY_NAME[load]
    run(gpu, 4)
    sums = {"power": 0.0, "temperature": 0.0, "clock": 0.0}
    activity, moved = list(gpu.activity), gpu.bytes[1]

    def add(gpu):
        sums["power"] += gpu.average
        sums["temperature"] += gpu.core
        sums["clock"] += gpu.clock

    run(gpu, 22, add)
    found = {name: value / 220 for name, value in sums.items()}
    for name, place in (("sm", 1), ("tensor", 4), ("dram", 9)):
        found[name] = (gpu.activity[place] - activity[place]) / 22
    return found | {"pcie_receive": (gpu.bytes[1] - moved) / 22 / 1048576}


@pytest.mark.parametrize("load", sorted(RECORDED))
def test_calibration(load):
    """Each labelled load behaves as on the real H200: power within 4 %, temperature within 3 degrees, clock 5 %."""
    real, model = RECORDED[load], means(load)
    assert model["power"] == pytest.approx(real["power"], rel=0.04)
    assert model["temperature"] == pytest.approx(real["temperature"], abs=3)
    assert model["clock"] == pytest.approx(real["clock"], rel=0.06)
    for name in ("sm", "tensor", "dram"):
        assert model[name] == pytest.approx(real[name], rel=0.05, abs=0.5), name
    assert model["pcie_receive"] == pytest.approx(real["pcie_receive"], rel=0.15, abs=5)


def test_most_of_the_rise_is_immediate():
    """From idle into a matmul the core gains two thirds of its rise within a second, as recorded (39 to 57 of 60)."""
    gpu = Gpu(H200)
    gpu.load = BY_NAME["idle"]
    run(gpu, 60)
    cold = gpu.core
    gpu.load = BY_NAME["compute_bf16_matmul"]
    run(gpu, 1)
    soon = gpu.core
    run(gpu, 60)
    assert soon - cold > 0.6 * (gpu.core - cold)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_every_product_runs_at_its_limit_without_throttling(profile):
    """In a cool room a matmul is power-capped, never thermally limited, on every product."""
    gpu = Gpu(profile)
    gpu.load = BY_NAME["compute_bf16_matmul"]
    run(gpu, 120)
    assert gpu.power == pytest.approx(profile.power_default, rel=0.03)
    assert gpu.reasons == POWER_CAP
    assert 50 < gpu.core < profile.gpu_max


def test_a_lower_cap_costs_clock_and_gives_heat_back():
    """Capped to 500 W the clock falls, the power obeys, the core cools, and the power-cap time runs."""
    gpu = Gpu(H200)
    gpu.load = BY_NAME["train_healthy_bf16"]
    run(gpu, 60)
    hot, fast, counted = gpu.core, gpu.clock, gpu.reason_ns[0]
    gpu.requested = 500
    run(gpu, 60)
    assert gpu.power < 500
    assert gpu.core < hot - 5
    assert gpu.clock < fast - 150
    assert gpu.reason_ns[0] - counted == pytest.approx(60e9, rel=0.02)


def test_outside_limit_wins():
    """A BMC cap below the requested limit is what is enforced."""
    gpu = Gpu(H200)
    gpu.outside_limit = 500
    gpu.load = BY_NAME["compute_bf16_matmul"]
    run(gpu, 10)
    assert (gpu.requested, gpu.enforced) == (700, 500)
    assert gpu.power < 505


def test_heat_slows_software_first():
    """A fouled cold plate brings SW thermal slowdown, which holds the core near its maximum operating temperature."""
    gpu = Gpu(H200)
    gpu.fouling = 2.2
    gpu.load = BY_NAME["train_healthy_bf16"]
    run(gpu, 180)
    assert gpu.reasons & SW_THERMAL
    assert gpu.reason_ns[2] > 0
    assert H200.gpu_max - 4 < gpu.core < H200.slowdown + 2
    assert gpu.clock < 0.92 * H200.sm_max


def test_hot_memory_throttles_a_cool_core():
    """HBM above its maximum sets the software thermal reason while the core is far from its own."""
    gpu = Gpu(H200)
    gpu.memory_offset = 45
    gpu.load = BY_NAME["memory_copy"]
    run(gpu, 60)
    assert gpu.reasons & SW_THERMAL
    assert gpu.core < H200.gpu_max - 20


def test_hardware_slowdown_halves_the_clock():
    """At the slowdown temperature the hardware cuts the clock by half or more and says so."""
    gpu = Gpu(H200)
    gpu.load = BY_NAME["compute_fp32_matmul"]
    gpu.core = gpu.sink = float(H200.slowdown + 1)
    step(gpu, 0.1)
    assert gpu.reasons & HW_THERMAL
    assert gpu.clock <= 0.5 * H200.sm_max


def test_power_brake():
    """The brake halves the clock with normal temperatures; its own counter runs."""
    gpu = Gpu(H200)
    gpu.load = BY_NAME["train_healthy_bf16"]
    gpu.brake = True
    run(gpu, 10)
    assert gpu.reasons == 0x8C
    assert gpu.reasons & POWER_BRAKE
    assert gpu.power < 0.6 * 700
    assert gpu.reason_ns[4] == pytest.approx(10e9)


def test_clock_lock():
    """A locked clock is not exceeded."""
    gpu = Gpu(H200)
    gpu.load = BY_NAME["train_fp32"]
    gpu.locked = (345, 1500)
    run(gpu, 5)
    assert gpu.clock == 1500
    assert gpu.power < 633 * 0.9


def test_no_context_idles_low():
    """Without a context the clock and power are the idle ones, with one the clock stays at its maximum."""
    gpu = Gpu(H200)
    gpu.load = OFF
    run(gpu, 5)
    assert (gpu.clock, gpu.reasons) == (345, 1)
    gpu.load = BY_NAME["idle"]
    run(gpu, 5)
    assert (gpu.clock, gpu.reasons) == (1980, 0)


@given(
    profile=st.sampled_from((A100, H100, H200, B200)),
    inlet=st.floats(5, 45),
    fouling=st.floats(0.9, 3),
    moves=st.lists(
        st.tuples(st.sampled_from(LOADS), st.floats(0, 1), st.integers(5, 150)), min_size=1, max_size=6
    ),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_bounds(profile, inlet, fouling, moves):
    """Whatever runs under whatever cap: power never stays over the cap, temperature stays between inlet and a limit,
    counters never fall."""
    gpu = Gpu(profile, fouling=fouling)
    gpu.inlet = inlet
    gpu.settle()
    for load, cap, steps in moves:
        gpu.load = load
        gpu.requested = profile.power_min + cap * (profile.power_max - profile.power_min)
        over = 0
        for _ in range(steps):
            before = (gpu.energy, gpu.uptime, *gpu.activity, *gpu.bytes, *gpu.reason_ns)
            step(gpu, 0.1)
            after = (gpu.energy, gpu.uptime, *gpu.activity, *gpu.bytes, *gpu.reason_ns)
            assert all(new >= old for old, new in zip(before, after, strict=True))
            over = over + 1 if gpu.power > gpu.enforced * 1.02 else 0
            assert over <= 3
            assert inlet <= gpu.core <= profile.shutdown + 20
            assert inlet <= gpu.memory <= profile.shutdown + 40
            assert 0 <= gpu.utilization <= 100


@given(dt=st.floats(0.05, 0.5), duty=st.floats(0.05, 0.95), period=st.floats(0.1, 5))
@settings(max_examples=60, deadline=None)
def test_pauses_keep_their_share(dt, duty, period):
    """However steps fall into a work-and-pause cycle, the work done is its exact share of the time."""
    gpu = Gpu(H200)
    gpu.load = BY_NAME["train_fp32"]._replace(period=period, duty=duty, jitter=0)
    steps = round(200 * period / dt)
    for _ in range(steps):
        step(gpu, dt)
    assert gpu.activity[1] / (95.2 * steps * dt) == pytest.approx(duty, abs=0.02)


def test_schedule_is_the_same_for_the_same_seed():
    """Two schedules of one seed agree for an hour, another seed differs, and jobs come and go."""
    first, second, other = Schedule(8, 3), Schedule(8, 3), Schedule(8, 4)
    times = [float(number * 7) for number in range(500)]
    a = [tuple(load.name for load in first.loads(now).values()) for now in times]
    b = [tuple(load.name for load in second.loads(now).values()) for now in times]
    c = [tuple(load.name for load in other.loads(now).values()) for now in times]
    assert a == b
    assert a != c
    assert len({names[0] for names in a}) > 2
    assert all(len(names) == 8 for names in a)


def test_inlet_default():
    """An idle H200 in the default room reads what the real one did: 39 degrees."""
    gpu = Gpu(H200)
    gpu.load = BY_NAME["idle"]
    run(gpu, 90)
    assert gpu.inlet == INLET
    assert gpu.core == pytest.approx(39, abs=1)
