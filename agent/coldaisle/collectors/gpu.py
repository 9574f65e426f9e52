"""GPUs: everything of the catalogue, and what only the agent can say (state, expected, time in state, peaks)."""

from collections.abc import Callable

from coldaisle.collectors.boundary import Result
from coldaisle.domain.gpu import GpuState
from coldaisle.metrics.families import Family, HistogramValue, Kind, Sample
from coldaisle.metrics.gpu_fields import BY_CADENCE, CLOCK_EVENT_REASONS, FAMILIES, FAST, POSITION
from coldaisle.metrics.gpu_table import USABLE, GpuRecord, GpuTable

_GPU = ("gpu", "uuid")
INFO = Family(
    "dgx_gpu_info",
    Kind.INFO,
    "Identity of a GPU, to join with the other series by gpu and uuid.",
    (*_GPU, "name", "serial", "pci_bus_id", "vbios", "architecture", "minor", "cuda_capability", "board_part_number"),
)
STATE = Family(
    "dgx_gpu_state", Kind.STATESET, "State of a GPU: 1 for the present one, judged by NVML.", (*_GPU, "state")
)
UP = Family("dgx_gpu_up", Kind.GAUGE, "1 if the GPU answers, 0 if it is late, hung, lost or set aside.", _GPU)
EXPECTED = Family(
    "dgx_gpu_expected",
    Kind.GAUGE,
    "GPUs that this node should have, by config, DMI product or PCI bus (label how).",
    ("how",),
)
SEEN = Family("dgx_gpu_seen", Kind.GAUGE, "GPUs that the driver enumerates; absent while no driver answers.")
REASON = Family(
    "dgx_gpu_clock_event_active",
    Kind.GAUGE,
    "1 while the driver names this reason for holding clocks down (momentary; see the seconds counters).",
    (*_GPU, "reason"),
)
OBSERVED = Family(
    "dgx_gpu_clock_event_observed_seconds_total",
    Kind.COUNTER,
    "Time in which the agent's samples showed this clock-event reason; works on every driver, misses nothing longer "
    "than one interval.",
    (*_GPU, "reason"),
    "seconds",
)
SOURCE = Family(
    "dgx_gpu_source_info",
    Kind.INFO,
    "Which source gives a GPU's device and profiling quantities; absent where none does.",
    (*_GPU, "quantities", "source"),
)
TEMPERATURE_PEAKS = Family(
    "dgx_gpu_temperature_distribution_celsius",
    Kind.HISTOGRAM,
    "All samples of a GPU's temperature, so that a slow scrape does not miss a short peak.",
    (*_GPU, "sensor"),
    "celsius",
)
POWER_PEAKS = Family(
    "dgx_gpu_power_limit_distribution_ratio",
    Kind.HISTOGRAM,
    "All samples of power drawn as a share of the enforced limit.",
    _GPU,
    "ratio",
)
PCIE_BYTES = Family(
    "dgx_gpu_pcie_data_bytes_total",
    Kind.COUNTER,
    "PCIe traffic since the agent started, integrated from GPM's exact interval means (derived).",
    (*_GPU, "direction"),
    "bytes",
)
DRIVER_SECONDS = Family(
    "coldaisle_vendor_call_seconds_total",
    Kind.COUNTER,
    "Time that the agent has spent inside vendor calls for a GPU.",
    _GPU,
    "seconds",
)
DROPPED = Family(
    "coldaisle_dropped_values_total",
    Kind.COUNTER,
    "Values refused because they were NaN, a vendor's blank sentinel, impossible or malformed.",
    ("source", "reason"),
)

# Edges: the bands operators alert on. 60 is warm, 80-85 is where H100/H200 cores start to slow (max-op 83-87), 95 is
# the memory's maximum; power: 0.2 is about idle on every part, 0.97 is "at the limit" (gpu.md's classification).
TEMPERATURE_EDGES = (40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 95.0)
POWER_EDGES = (0.2, 0.4, 0.6, 0.8, 0.9, 0.97, 1.0, 1.05)
DROP_REASONS = ("nan", "sentinel", "impossible", "malformed")

_REASONS_AT = POSITION["clock_event_reasons"][1]
_POWER_AT = POSITION["power"][1]
_LIMIT_AT = POSITION["power_limit_enforced"][1]
_CORE_AT = POSITION["temperature_core"][1]
_MEMORY_AT = POSITION["temperature_memory"][1]
_PCIE = (("transmit", POSITION["pcie_transmit"][1]), ("receive", POSITION["pcie_receive"][1]))


class Histogram:
    """Counts samples into buckets."""

    __slots__ = ("counts", "edges", "sum")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one sample."""
        place = 0
        for edge in self.edges:
            if value <= edge:
                break
            place += 1
        self.counts[place] += 1
        self.sum += value

    def value(self) -> HistogramValue:
        """Return the state for the exposition."""
        return HistogramValue(self.edges, tuple(self.counts), self.sum)


class _Series:
    """Label tuples and running counters of one GPU, made once."""

    __slots__ = (
        "bytes",
        "core",
        "info",
        "labels",
        "last_fast",
        "memory",
        "observed",
        "power",
        "rows",
        "sources",
        "sources_of",
        "states",
        "uuid",
    )

    def __init__(self, record: GpuRecord) -> None:
        identity = record.identity
        self.uuid = identity.uuid
        self.labels = (str(identity.index), identity.uuid)
        minor = "" if identity.minor is None else str(identity.minor)
        self.info = (
            *self.labels,
            identity.name,
            identity.serial,
            identity.pci_bus_id,
            identity.vbios,
            identity.architecture,
            minor,
            identity.cuda_capability,
            identity.board_part_number,
        )
        self.rows = {
            cadence: [
                (place, field.family, self.labels + field.labels)
                for place, field in enumerate(fields)
                if field.family is not None
            ]
            for cadence, fields in BY_CADENCE.items()
        }
        self.states = [(state, (*self.labels, state.value)) for state in GpuState]
        self.observed = {name: [0.0, (*self.labels, name)] for _, name in CLOCK_EVENT_REASONS}
        self.core = Histogram(TEMPERATURE_EDGES)
        self.memory = Histogram(TEMPERATURE_EDGES)
        self.power = Histogram(POWER_EDGES)
        self.bytes = {direction: [0.0, (*self.labels, direction)] for direction, _ in _PCIE}
        self.last_fast: float | None = None
        self.sources_of: dict[str, str] = {}
        self.sources: list[Sample] = []


class GpuCollector:
    """Turns the GPU table into samples.

    Args:
        table: the readings.
        expected: returns (how many GPUs the node should have, how that is known), (None, "") if unknown.
        seen: returns how many the driver enumerates, None while no driver answers.
    """

    name = "gpu"
    families = (
        INFO,
        STATE,
        UP,
        EXPECTED,
        SEEN,
        *FAMILIES,
        REASON,
        OBSERVED,
        TEMPERATURE_PEAKS,
        POWER_PEAKS,
        PCIE_BYTES,
        SOURCE,
        DRIVER_SECONDS,
        DROPPED,
    )

    def __init__(
        self, table: GpuTable, expected: Callable[[], tuple[int | None, str]], seen: Callable[[], int | None]
    ) -> None:
        self._table = table
        self._expected = expected
        self._seen = seen
        self._series: dict[int, _Series] = {}

    def collect(self, now: float) -> Result:
        """Return every GPU's samples; partial as soon as one GPU is missing or unwell."""
        samples: list[Sample] = []
        problems = []
        action = ""
        for index, record in sorted(self._table.gpus.items()):
            if not record.identity.uuid:
                problems.append(f"GPU {index} {record.state.value}: {record.reason}")
                continue
            series = self._series.get(index)
            if series is None or series.uuid != record.identity.uuid:
                series = self._series[index] = _Series(record)
            self._count(series, record, now)
            self._add_gpu(samples, series, record, now)
            if record.state not in (GpuState.OK, GpuState.STARTING):
                problems.append(f"GPU {index} {record.state.value}: {record.reason}")
                action = action or record.remedy
        self._add_node(samples, problems)
        if len(problems) > 3:
            problems[3:] = [f"and {len(problems) - 3} more"]
        return Result(samples, "; ".join(problems), action)

    def _count(self, series: _Series, record: GpuRecord, now: float) -> None:
        """Feed histograms and time-in-state counters with a frame that has not been counted yet."""
        values = self._table.row(record, FAST, now)
        if values is None:
            return
        taken_at = record.rows[FAST][0]
        if taken_at == series.last_fast:
            return
        elapsed = taken_at - series.last_fast if series.last_fast is not None else 0.0
        # After a gap nobody knows what happened in it: it is not credited to any state.
        elapsed = elapsed if elapsed <= 3 * self._table.interval else 0.0
        series.last_fast = taken_at
        self._add_peaks(series, values)
        if (mask := values[_REASONS_AT]) is not None:
            for bit, name in CLOCK_EVENT_REASONS:
                if int(mask) & bit:
                    series.observed[name][0] += elapsed  # type: ignore[operator]
        for direction, place in _PCIE:
            if values[place] is not None:
                series.bytes[direction][0] += values[place] * elapsed

    @staticmethod
    def _add_peaks(series: _Series, values: list[float | None]) -> None:
        if (core := values[_CORE_AT]) is not None:
            series.core.add(core)
        if (memory := values[_MEMORY_AT]) is not None:
            series.memory.add(memory)
        if (power := values[_POWER_AT]) is not None and (limit := values[_LIMIT_AT]):
            series.power.add(power / limit)

    def _add_gpu(self, samples: list[Sample], series: _Series, record: GpuRecord, now: float) -> None:
        labels = series.labels
        samples.append(Sample(INFO, series.info, 1))
        samples.append(Sample(UP, labels, int(record.state is GpuState.OK)))
        samples.extend(Sample(STATE, names, int(record.state is state)) for state, names in series.states)
        samples.append(Sample(DRIVER_SECONDS, labels, record.driver_seconds))
        if record.state in USABLE:
            for cadence, row in series.rows.items():
                values = self._table.row(record, cadence, now)
                if values is not None:
                    samples.extend(
                        Sample(family, names, values[place])
                        for place, family, names in row
                        if values[place] is not None
                    )
                    if cadence == FAST:
                        self._add_reasons(samples, series, values)
        self._add_kept(samples, series, record)

    @staticmethod
    def _add_reasons(samples: list[Sample], series: _Series, values: list[float | None]) -> None:
        mask = values[_REASONS_AT]
        if mask is not None:
            samples.extend(
                Sample(REASON, series.observed[name][1], int(bool(int(mask) & bit)))  # type: ignore[arg-type]
                for bit, name in CLOCK_EVENT_REASONS
            )

    @staticmethod
    def _add_kept(samples: list[Sample], series: _Series, record: GpuRecord) -> None:
        """Add what the agent itself keeps: it goes on while a GPU is away, as counters must."""
        if series.last_fast is None:
            return
        labels = series.labels
        samples.extend(Sample(OBSERVED, names, value) for value, names in series.observed.values())  # type: ignore[arg-type]
        samples.append(Sample(TEMPERATURE_PEAKS, (*labels, "core"), series.core.value()))
        if any(series.memory.counts):
            samples.append(Sample(TEMPERATURE_PEAKS, (*labels, "memory"), series.memory.value()))
        samples.append(Sample(POWER_PEAKS, labels, series.power.value()))
        if record.sources is not series.sources_of:
            series.sources_of = record.sources
            series.sources = [Sample(SOURCE, (*labels, "device", "nvml"), 1)]
            if "gpm" in record.sources.values():
                series.sources.append(Sample(SOURCE, (*labels, "profiling", "gpm"), 1))
        samples.extend(series.sources)
        if "pcie_receive" in record.sources:
            samples.extend(Sample(PCIE_BYTES, names, value) for value, names in series.bytes.values())  # type: ignore[arg-type]

    def _add_node(self, samples: list[Sample], problems: list[str]) -> None:
        expected, how = self._expected()
        seen = self._seen()
        if expected is not None:
            samples.append(Sample(EXPECTED, (how,), expected))
        if seen is not None:
            samples.append(Sample(SEEN, (), seen))
            if expected is not None and seen < expected:
                problems.append(f"{seen} of {expected} GPUs are there (expected by {how})")
        dropped = self._table.dropped
        samples.extend(Sample(DROPPED, ("nvml", reason), dropped.get(("nvml", reason), 0)) for reason in DROP_REASONS)
