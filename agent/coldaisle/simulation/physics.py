"""One GPU's physics: power from activity and cap, heat from power, clocks from heat and cap, counters that integrate.

Pure: `step` changes only the `Gpu` it is given and takes its randomness from it. Calibrated on a real H200
(tests/simulation/h200-loads.json): a bf16 matmul settles at 692 of 700 W, 1480 MHz and 60 degrees with most of the rise
within a second, as recorded.
"""

import random

from coldaisle.simulation.profiles import Profile
from coldaisle.simulation.workloads import OFF, Load

PREHEAT = 9.5
"""Degrees that the air gains before it meets the cold plate; with 25 degrees at the inlet the H200 idles at 39."""
INLET = 25.0
"""Degrees of the room's air unless a scenario says otherwise."""
LEAST_INLET, MOST_INLET = -20, 70
"""Degrees of inlet air that may be asked for."""
CLOCK_EXPONENT = 2.4
"""Dynamic power goes with clock to this power: between f*V^2 at the top and f alone at the bottom of the range."""
REGULATION = 0.99
"""The power regulator holds the mean so close below the limit: 692 of 700 W recorded."""
CORE_SECONDS = 0.6
SINK_SECONDS = 15.0
MEMORY_SECONDS = 8.0
MEMORY_WATTS = 110.0
"""Power of the HBM stacks at full bandwidth, on the 700 W scale."""
MEMORY_RESISTANCE = 0.1
AVERAGE_SECONDS = 0.4
THERMAL_FLOOR = 0.25
"""SW thermal slowdown goes down to this share of the clock."""
SECOND = 1e9

IDLE, POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x1, 0x4, 0x8, 0x20, 0x40, 0x80
"""Bits of nvmlClocksEventReasons."""

ACTIVITIES = (
    "graphics", "sm", "occupancy", "integer", "tensor", "dfma", "hmma", "dmma", "imma", "dram", "fp64", "fp32", "fp16",
)  # fmt: skip
"""Accumulators in percent-seconds, in the order of GPM metrics 1 to 13."""


class Gpu:
    """The state of one GPU. Watts, degrees Celsius, MHz, seconds, bytes; counters never fall but by `reset_counters`.

    Args:
        profile: what product it is.
        seed: of its noise.
        preheat: degrees that its place in the air stream adds.
        fouling: factor on its thermal resistances (1: as new).
    """

    def __init__(self, profile: Profile, seed: str = "0", preheat: float = PREHEAT, fouling: float = 1.0) -> None:
        self.profile = profile
        self.random = random.Random(seed)  # noqa: S311  a model's spread, no secret
        self.load: Load = OFF
        self.phase = 0.0
        # What acts on it
        self.inlet = INLET
        self.preheat = preheat
        self.base_fouling = fouling
        self.fouling = 1.0
        self.memory_offset = 0.0
        self.requested = float(profile.power_default)
        self.outside_limit = 0.0  # of the BMC or a power brake's owner; 0: none
        self.locked = (0, 0)  # MHz; (0, 0): unlocked
        self.brake = False
        self.dead = False
        # What can be seen
        self.power = profile.power_idle
        self.average = profile.power_idle
        self.core = self.sink = self.memory = self.inlet + preheat
        self.clock = float(profile.sm_min)
        self.reasons = IDLE
        self.utilization = 0.0
        self.copy_utilization = 0.0
        # What governs the clock
        self.thermal_scale = 1.0
        self.hot = False
        # Counters
        self.uptime = 0.0
        self.energy = 0.0
        self.activity = [0.0] * len(ACTIVITIES)
        self.bytes = [0.0] * 4  # PCIe sent and received, NVLink received and sent
        self.reason_ns = [0.0] * 5  # power cap, sync boost, SW thermal, HW thermal, power brake
        self.settle()

    @property
    def enforced(self) -> float:
        """Watts: the least of every limiter, in band and outside."""
        return min(self.requested, self.outside_limit) if self.outside_limit else self.requested

    def settle(self) -> None:
        """Put the temperatures where the present power would have them in the long run."""
        self.sink, self.core, self.memory = _targets(self, self.power, 0.0)
        self.core += self.sink

    def reset_counters(self) -> None:
        """As after a driver load or GPU reset: energy and reason times start at 0, the limit is the default."""
        self.energy = 0.0
        self.reason_ns = [0.0] * 5
        self.requested = float(self.profile.power_default)
        self.locked = (0, 0)


def step(gpu: Gpu, dt: float) -> None:
    """Advance one GPU by `dt` seconds (0.1 in the simulator; stable up to 0.5)."""
    load = gpu.load
    busy = _busy_share(gpu, load, dt)
    noise = 1.0 + load.jitter * (gpu.random.random() + gpu.random.random() - 1.0) * 2.4
    _thermal_governor(gpu, dt)
    scale = _move_clock_and_power(gpu, load, busy, noise)
    dram = min(1.0, load.dram * busy * noise / 100)
    sink, core, memory = _targets(gpu, gpu.power, dram)
    gpu.sink += (sink - gpu.sink) * min(1.0, dt / SINK_SECONDS)
    gpu.core += (gpu.sink + core - gpu.core) * min(1.0, dt / CORE_SECONDS)
    gpu.memory += (memory - gpu.memory) * min(1.0, dt / MEMORY_SECONDS)
    gpu.average += (gpu.power - gpu.average) * min(1.0, dt / AVERAGE_SECONDS)
    _integrate(gpu, load, busy * noise, scale, dt)


def _busy_share(gpu: Gpu, load: Load, dt: float) -> float:
    """Return the exact share of the step that falls into the load's working phase."""
    if gpu.dead:
        return 0.0
    if not load.period:
        return 1.0
    begin = gpu.phase
    gpu.phase = (begin + dt) % load.period
    work = load.period * load.duty
    whole, rest = divmod(dt, load.period)
    end = begin + rest
    overlap = max(0.0, min(end, work) - begin) + max(0.0, min(end - load.period, work))
    return min(1.0, (whole * work + overlap) / dt)


def _thermal_governor(gpu: Gpu, dt: float) -> None:
    """Move the two thermal limiters: software's follows how far too hot it is, hardware's halves with hysteresis."""
    profile = gpu.profile
    excess = max(gpu.core - profile.gpu_max, gpu.memory - profile.memory_max)
    if excess > 0:
        gpu.thermal_scale = max(THERMAL_FLOOR, gpu.thermal_scale - 0.06 * min(excess, 4.0) * dt)
    elif excess < -1 and gpu.thermal_scale < 1:
        gpu.thermal_scale = min(1.0, gpu.thermal_scale + 0.02 * min(-excess, 4.0) * dt)
    if gpu.core >= profile.slowdown:
        gpu.hot = True
    elif gpu.core < profile.slowdown - 3:
        gpu.hot = False


def _move_clock_and_power(gpu: Gpu, load: Load, busy: float, noise: float) -> float:
    """Set clock, power and reasons; return the clock as a share of the maximum."""
    profile = gpu.profile
    if gpu.dead:
        gpu.power, gpu.clock, gpu.reasons = 0.0, 0.0, 0
        return 0.0
    if not load.context:
        gpu.power = profile.power_idle * noise
        gpu.clock = float(profile.sm_min)
        gpu.reasons = IDLE
        return 0.0
    static = profile.power_context
    wanted = _scaled(profile, load.watts) * busy + _scaled(profile, load.pause_watts) * (1 - busy)
    demand = max(0.0, wanted - static) * noise
    reasons, top = _ceiling(gpu)
    share = top
    room = gpu.enforced * REGULATION - static
    if demand > 1.0 and demand * share**CLOCK_EXPONENT > room:
        reasons |= POWER_CAP
        lowest = profile.sm_min / profile.sm_max
        share = min(share, max(lowest, (max(room, 0.0) / demand) ** (1 / CLOCK_EXPONENT)))
    wobble = 1.0 + (noise - 1.0) * 0.05 if reasons & POWER_CAP else 1.0  # the regulator leaves a watt or two
    gpu.power = static * (1.0 + (noise - 1.0) * 0.02) + demand * share**CLOCK_EXPONENT * wobble
    gpu.clock = round(profile.sm_max * share / 15) * 15.0
    gpu.reasons = reasons
    return share


def _ceiling(gpu: Gpu) -> tuple[int, float]:
    """Return the reasons and the share of the maximum clock that heat, brake and locks leave."""
    profile = gpu.profile
    reasons, top = 0, 1.0
    if gpu.thermal_scale < 1:
        reasons |= SW_THERMAL
        top = gpu.thermal_scale
    if gpu.hot:
        reasons |= HW_SLOWDOWN | HW_THERMAL
        top = min(top, 0.45)
    if gpu.brake:
        reasons |= HW_SLOWDOWN | POWER_BRAKE | POWER_CAP
        top = min(top, 0.5)
    if gpu.locked[1]:
        top = min(top, gpu.locked[1] / profile.sm_max)
    return reasons, max(top, profile.sm_min / profile.sm_max)


def _scaled(profile: Profile, watts: float) -> float:
    """Translate watts of a load on the H200 to this product: idle to idle, 700 W to its default limit."""
    return profile.power_context + (watts - 124.9) / 575.1 * (profile.power_default - profile.power_context)


def _targets(gpu: Gpu, power: float, dram: float) -> tuple[float, float, float]:
    """Return where cold plate (degrees), core (degrees above the plate) and memory (degrees) would settle."""
    profile = gpu.profile
    memory_power = min(power, MEMORY_WATTS * dram * profile.power_default / 700)
    fouling = gpu.base_fouling * gpu.fouling
    sink = gpu.inlet + gpu.preheat + profile.sink_resistance * power * fouling
    core = profile.core_resistance * (power - memory_power) * fouling
    memory = sink + MEMORY_RESISTANCE * memory_power * 700 / profile.power_default + 0.45 * core + gpu.memory_offset
    return sink, core, memory


def _integrate(gpu: Gpu, load: Load, busy: float, scale: float, dt: float) -> None:
    profile = gpu.profile
    gpu.uptime += dt
    gpu.energy += gpu.power * dt
    reasons = gpu.reasons
    if reasons & ~IDLE:
        for place, bit in enumerate((POWER_CAP, 0x10, SW_THERMAL, HW_THERMAL, POWER_BRAKE)):
            if reasons & bit:
                gpu.reason_ns[place] += dt * SECOND
    share = min(1.02, busy)
    gpu.utilization = min(100.0, load.utilization * share)
    gpu.copy_utilization = min(100.0, load.copy_utilization * share)
    seconds = share * dt
    activity = gpu.activity
    values = (load.graphics, load.sm, load.occupancy, load.integer, load.tensor)
    for place, value in enumerate(values):
        activity[place] += min(100.0 * dt, value * seconds)
    if load.tensor:
        activity[_TENSOR[load.tensor_type]] += min(100.0 * dt, load.tensor * seconds)
    for place, value in enumerate((load.dram, load.fp64, load.fp32, load.fp16), 9):
        activity[place] += min(100.0 * dt, value * seconds)
    speed = scale**0.5 if load.tensor or load.fp32 else 1.0  # slower compute moves fewer bytes; a copy does not care
    pcie = profile.pcie_bytes / 55.9e9
    gpu.bytes[0] += load.pcie_tx * pcie * seconds * speed
    gpu.bytes[1] += load.pcie_rx * pcie * seconds * speed
    if load.nvlink:
        moved = load.nvlink * profile.nvlinks * profile.nvlink_bytes * seconds * speed
        gpu.bytes[2] += moved
        gpu.bytes[3] += moved


_TENSOR = {"dfma": 5, "hmma": 6, "dmma": 7, "imma": 8}
