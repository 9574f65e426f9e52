"""What a GPU has besides physics: error counters, links, what its setters do, and the faults that are on it."""

from array import array

from coldaisle.simulation import profiles
from coldaisle.simulation.machine import COUNTERS_FROM, GLITCH_READS, GPU
from coldaisle.simulation.physics import Gpu
from coldaisle.simulation.profiles import Profile
from coldaisle.simulation.workloads import OFF, Load

SENSORS = ("temperature", "power", "gpm", "energy")
"""What a glitch can hit."""


class Board:
    """One GPU of the simulated machine.

    Args:
        profile: what product it is.
        index: its place; fixes PCI address and UUID.
        gpu: its physics.
    """

    def __init__(self, profile: Profile, index: int, gpu: Gpu) -> None:
        self.profile = profile
        self.index = index
        self.gpu = gpu
        self.bus_id = profiles.bus_id(index)
        self.pinned: Load | None = None
        # Answers of every call
        self.error = 0
        self.hang = False
        self.segfault = False
        self.missing = False
        self.gpm_error = 0
        self.setter_error = 0
        self.setter_ignored = False
        self.glitches = dict.fromkeys(SENSORS, (0, 0))
        # Counters and states
        self.corrected_rate = 0.0
        self.corrected = [0.0, 0.0]  # volatile, aggregate
        self.uncorrected = [0.0, 0.0]
        self.remapped = [0, 0]  # for correctable, uncorrectable errors
        self.remap_pending = False
        self.remap_failure = False
        self.recovery = 0
        self.pcie = (profile.pcie_generation, 16)
        self.pcie_replays = 0

    def glitch(self, sensor: str, reads: int) -> None:
        """Let the next `reads` reads of a sensor by each process be nonsense."""
        self.glitches[sensor] = (self.glitches[sensor][0] + 1, reads)

    def set_limit(self, watts: float) -> int:
        """Set the requested power limit as the in-band setter does; return NVML's return code."""
        if refused := self._refused():
            return refused
        if not self.profile.power_min <= watts <= self.profile.power_max:
            return 2
        if not self.setter_ignored:
            self.gpu.requested = watts
        return 0

    def lock_clocks(self, low: int, high: int) -> int:
        """Lock the SM clock between two MHz values, (0, 0) unlocks; return NVML's return code."""
        if refused := self._refused():
            return refused
        if (low, high) != (0, 0) and not 0 < low <= high:
            return 2
        if not self.setter_ignored:
            self.gpu.locked = (low, min(high, self.profile.sm_max))
        return 0

    def _refused(self) -> int:
        return self.error or self.setter_error or (15 if self.missing else 0)

    def take_load(self, scheduled: Load) -> None:
        """Run the pinned load, else the scheduled one; nothing on a GPU that does not work."""
        self.gpu.load = OFF if self.error in (15, 16) or self.missing else self.pinned or scheduled

    def count_errors(self, dt: float) -> None:
        """Let corrected errors of a storm add up."""
        if self.corrected_rate:
            self.corrected = [value + self.corrected_rate * dt for value in self.corrected]

    def reset(self) -> None:
        """As after a GPU reset: volatile counters at 0, pending remaps done, limit and clocks at their defaults."""
        self.gpu.reset_counters()
        self.corrected[0] = self.uncorrected[0] = 0.0
        self.remap_pending = False
        self.recovery = 0

    def fill(self, record: "array[float]") -> None:
        """Write everything into the GPU's record, the sequence number apart."""
        gpu, profile = self.gpu, self.profile
        record[1:15] = array(
            "d",
            (
                gpu.uptime, gpu.power, gpu.average, gpu.energy * 1000, gpu.core, gpu.memory, gpu.clock, gpu.reasons,
                gpu.utilization, gpu.copy_utilization,
                gpu.load.memory * (profile.memory_bytes - profile.reserved_bytes),
                gpu.load.context, gpu.requested, gpu.enforced,
            ),
        )  # fmt: skip
        record[15:COUNTERS_FROM] = array("d", gpu.reason_ns)
        record[COUNTERS_FROM : COUNTERS_FROM + 17] = array("d", gpu.activity + gpu.bytes)
        begin = GPU["sbe_volatile"]
        rest = (
            int(self.corrected[0]), self.uncorrected[0], int(self.corrected[1]), self.uncorrected[1],
            *self.remapped, self.remap_pending, self.remap_failure, self.recovery, *self.pcie, self.pcie_replays,
            self._trouble(), self.error, self.hang, self.segfault, self.gpm_error, self.missing,
            *(generation * GLITCH_READS + reads for generation, reads in self.glitches.values()),
        )  # fmt: skip
        record[begin : begin + len(rest)] = array("d", rest)

    def _trouble(self) -> bool:
        return bool(self.error or self.hang or self.segfault or self.missing)
