"""The catalogue: every GPU quantity once. What the children read, what the exporter names and docs/metrics.md derive.

Sources of the numbers: field ids and units from NVML's and DCGM's public headers; cadences from what a read costs on a
real H200 (median microseconds in the comments; `make bench-hardware` measures them again); bounds are physical ones,
wide enough for every data-centre part: a value outside them is a broken sensor, not news.
"""

from typing import NamedTuple

from coldaisle.metrics.families import Family
from coldaisle.metrics.gpu_families import (
    CLOCK,
    CLOCK_EVENT_SECONDS,
    CLOCK_MAX,
    CODEC_UTILIZATION,
    COPY_UTILIZATION,
    DRAM,
    ECC_ERRORS,
    ECC_MODE,
    ENERGY,
    GRAPHICS,
    MARGIN,
    MARGIN_THRESHOLD,
    MEMORY,
    MEMORY_SIZE,
    MIG_MODE,
    NVLINK_BYTES,
    NVLINK_RATE,
    PCIE_ERRORS,
    PCIE_GENERATION,
    PCIE_RATE,
    PCIE_REPLAYS,
    PCIE_WIDTH,
    PERSISTENCE,
    PIPE,
    POWER,
    POWER_AVERAGE,
    POWER_LIMIT,
    PROCESSES,
    PSTATE,
    RECOVERY,
    REMAP_BANKS,
    REMAP_FAILURE,
    REMAP_PENDING,
    REMAPPED,
    SM_ACTIVE,
    SM_OCCUPANCY,
    TEMPERATURE,
    THRESHOLD,
    UTILIZATION,
)

FAST, BRISK, MEDIUM, SLOW, STATIC = "fast", "brisk", "medium", "slow", "static"
INTERVALS = {FAST: 1, BRISK: 2, MEDIUM: 10, SLOW: 30, STATIC: 3600}
"""Cadence -> ticks between reads (one tick is `gpu.interval`, one second by default)."""

ALL_LINKS = 0xFFFFFFFF
"""NVML scope id that sums a field over all NVLinks."""


class FieldId(NamedTuple):
    """One id of nvmlDeviceGetFieldValues."""

    id: int
    scope: int = 0


class Call(NamedTuple):
    """One NVML call with the GPU's handle and `args`; `pick` names the attribute or index of its result."""

    function: str
    args: tuple[int, ...] = ()
    pick: str | int | None = None


class Gpm(NamedTuple):
    """One GPM metric id (Hopper and later)."""

    id: int


Query = FieldId | Call | Gpm


class GpuField(NamedTuple):
    """One quantity.

    Args:
        key: its short name in recordings, configuration (`gpu.fields`) and `collect --format json`.
        family: the metric family, None for raw values that a collector expands.
        labels: static label values after `gpu` and `uuid`.
        cadence: how often it is read.
        queries: NVML ways to ask, best first; the first that is supported is used.
        scale: factor to the base unit.
        low, high: the value is impossible outside [low, high] (after scaling).
        dcgm: DCGM field id, for the DCGM source and the dcgm-exporter compatible page.
    """

    key: str
    family: Family | None
    labels: tuple[str, ...]
    cadence: str
    queries: tuple[Query, ...]
    scale: float = 1.0
    low: float = 0.0
    high: float = 1e18
    dcgm: int | None = None


def _pipe(key: str, gpm: int, dcgm: int | None = None) -> GpuField:
    return GpuField(f"pipe_{key}", PIPE, (key,), FAST, (Gpm(gpm),), 0.01, 0, 1.05, dcgm)


def _limit(kind: str, field: int, call: Call, cadence: str, dcgm: int) -> GpuField:
    return GpuField(f"power_limit_{kind}", POWER_LIMIT, (kind,), cadence, (FieldId(field), call), 1e-3, 1, 5e3, dcgm)


def _reason(name: str, field: int, dcgm: int) -> GpuField:
    return GpuField(
        f"clock_event_seconds_{name}", CLOCK_EVENT_SECONDS, (name,), FAST, (FieldId(field),), 1e-9, dcgm=dcgm
    )


def _ecc(error: str, scope: str, field: int, call: Call, dcgm: int) -> GpuField:
    return GpuField(f"ecc_{error}_{scope}", ECC_ERRORS, (error, scope), MEDIUM, (FieldId(field), call), dcgm=dcgm)


def _pcie_error(name: str, field: int) -> GpuField:
    return GpuField(f"pcie_errors_{name}", PCIE_ERRORS, (name,), SLOW, (FieldId(field),))


def _margin_threshold(name: str, field: int) -> GpuField:
    return GpuField(f"margin_threshold_{name}", MARGIN_THRESHOLD, (name,), STATIC, (FieldId(field),), 1.0, -60, 60)


def _threshold(name: str, kind: int, dcgm: int) -> GpuField:
    call = Call("nvmlDeviceGetTemperatureThreshold", (kind,))
    return GpuField(f"threshold_{name}", THRESHOLD, (name,), STATIC, (call,), 1.0, 1, 150, dcgm)


# A GPU in a data centre is never at or below 0 degrees, and 125 is past every shutdown threshold: 0 and 255 are what a
# missing or broken sensor says. MEDIUM is 10 s because energy costs 3,100 us a read and the PCIe error ids push a batch
# over 500 us; margin costs 860 us, hence BRISK.
GPU_FIELDS: tuple[GpuField, ...] = (
    GpuField(
        "temperature_core", TEMPERATURE, ("core",), FAST, (Call("nvmlDeviceGetTemperature", (0,)),), 1, 1, 125, 150
    ),
    GpuField("temperature_memory", TEMPERATURE, ("memory",), FAST, (FieldId(82),), 1, 1, 125, 140),
    GpuField("power", POWER, (), FAST, (FieldId(186), Call("nvmlDeviceGetPowerUsage")), 1e-3, 1, 5e3, 157),
    GpuField(
        "power_average", POWER_AVERAGE, (), FAST, (FieldId(185), Call("nvmlDeviceGetPowerUsage")), 1e-3, 1, 5e3, 155
    ),
    _limit("enforced", 190, Call("nvmlDeviceGetEnforcedPowerLimit"), FAST, 164),
    GpuField("clock_sm", CLOCK, ("sm",), FAST, (Call("nvmlDeviceGetClockInfo", (1,)),), 1e6, 0, 1e10, 100),
    GpuField("clock_memory", CLOCK, ("memory",), FAST, (Call("nvmlDeviceGetClockInfo", (2,)),), 1e6, 0, 2e10, 101),
    GpuField(
        "utilization", UTILIZATION, (), FAST, (Call("nvmlDeviceGetUtilizationRates", (), "gpu"),), 0.01, 0, 1, 203
    ),
    GpuField(
        "utilization_memory_copy",
        COPY_UTILIZATION,
        (),
        FAST,
        (Call("nvmlDeviceGetUtilizationRates", (), "memory"),),
        0.01,
        0,
        1,
        204,
    ),
    GpuField("memory_used", MEMORY, ("used",), FAST, (Call("memory_info", (), "used"),), 1, 0, 1e14, 252),
    GpuField("memory_free", MEMORY, ("free",), FAST, (Call("memory_info", (), "free"),), 1, 0, 1e14, 251),
    GpuField("memory_reserved", MEMORY, ("reserved",), FAST, (Call("memory_info", (), "reserved"),), 1, 0, 1e14, 253),
    GpuField("memory_size", MEMORY_SIZE, (), FAST, (Call("memory_info", (), "total"),), 1, 1, 1e14, 250),
    GpuField(
        "clock_event_reasons",
        None,
        (),
        FAST,
        (Call("nvmlDeviceGetCurrentClocksEventReasons"), Call("nvmlDeviceGetCurrentClocksThrottleReasons")),
        dcgm=112,
    ),
    _reason("sw_power_cap", 74, 1420),
    _reason("sync_boost", 76, 1421),
    _reason("sw_thermal", 269, 1422),
    _reason("hw_thermal", 270, 1423),
    _reason("hw_power_brake", 271, 1424),
    GpuField(
        "performance_state",
        PSTATE,
        (),
        FAST,
        (Call("nvmlDeviceGetPerformanceState"), Call("nvmlDeviceGetPowerState")),
        1,
        0,
        15,
        190,
    ),
    GpuField("graphics_active", GRAPHICS, (), FAST, (Gpm(1),), 0.01, 0, 1.05, 1001),
    GpuField("sm_active", SM_ACTIVE, (), FAST, (Gpm(2),), 0.01, 0, 1.05, 1002),
    GpuField("sm_occupancy", SM_OCCUPANCY, (), FAST, (Gpm(3),), 0.01, 0, 1.05, 1003),
    _pipe("tensor", 5, 1004),
    _pipe("tensor_dfma", 6, 1015),
    _pipe("tensor_hmma", 7, 1014),
    _pipe("tensor_dmma", 8),
    _pipe("tensor_imma", 9, 1013),
    _pipe("integer", 4, 1016),
    _pipe("fp64", 11, 1006),
    _pipe("fp32", 12, 1007),
    _pipe("fp16", 13, 1008),
    GpuField("dram_active", DRAM, (), FAST, (Gpm(10),), 0.01, 0, 1.05, 1005),
    GpuField("pcie_transmit", PCIE_RATE, ("transmit",), FAST, (Gpm(20),), 1048576, 0, 1e12, 1009),
    GpuField("pcie_receive", PCIE_RATE, ("receive",), FAST, (Gpm(21),), 1048576, 0, 1e12, 1010),
    GpuField("nvlink_receive", NVLINK_RATE, ("receive",), FAST, (Gpm(60),), 1048576, 0, 1e13, 1012),
    GpuField("nvlink_transmit", NVLINK_RATE, ("transmit",), FAST, (Gpm(61),), 1048576, 0, 1e13, 1011),
    GpuField("margin", MARGIN, (), BRISK, (Call("nvmlDeviceGetMarginTemperature"),), 1, -60, 125, 153),
    _limit("requested", 192, Call("nvmlDeviceGetPowerManagementLimit"), MEDIUM, 160),
    GpuField(
        "energy", ENERGY, (), MEDIUM, (FieldId(83), Call("nvmlDeviceGetTotalEnergyConsumption")), 1e-3, 0, 1e15, 156
    ),
    _ecc("corrected", "volatile", 3, Call("nvmlDeviceGetTotalEccErrors", (0, 0)), 310),
    _ecc("uncorrected", "volatile", 4, Call("nvmlDeviceGetTotalEccErrors", (1, 0)), 311),
    _ecc("corrected", "aggregate", 5, Call("nvmlDeviceGetTotalEccErrors", (0, 1)), 312),
    _ecc("uncorrected", "aggregate", 6, Call("nvmlDeviceGetTotalEccErrors", (1, 1)), 313),
    GpuField(
        "remapped_correctable",
        REMAPPED,
        ("correctable",),
        MEDIUM,
        (FieldId(142), Call("nvmlDeviceGetRemappedRows", (), 0)),
        dcgm=394,
    ),
    GpuField(
        "remapped_uncorrectable",
        REMAPPED,
        ("uncorrectable",),
        MEDIUM,
        (FieldId(143), Call("nvmlDeviceGetRemappedRows", (), 1)),
        dcgm=393,
    ),
    GpuField(
        "remap_pending",
        REMAP_PENDING,
        (),
        MEDIUM,
        (FieldId(144), Call("nvmlDeviceGetRemappedRows", (), 2)),
        1,
        0,
        1,
        396,
    ),
    GpuField(
        "remap_failure",
        REMAP_FAILURE,
        (),
        MEDIUM,
        (FieldId(145), Call("nvmlDeviceGetRemappedRows", (), 3)),
        1,
        0,
        1,
        395,
    ),
    GpuField("recovery_action", RECOVERY, (), MEDIUM, (FieldId(230),), 1, 0, 15, 1523),
    GpuField(
        "pcie_generation",
        PCIE_GENERATION,
        ("current",),
        MEDIUM,
        (Call("nvmlDeviceGetCurrPcieLinkGeneration"),),
        1,
        1,
        9,
        237,
    ),
    GpuField("pcie_width", PCIE_WIDTH, ("current",), MEDIUM, (Call("nvmlDeviceGetCurrPcieLinkWidth"),), 1, 1, 32, 238),
    GpuField("pcie_replays", PCIE_REPLAYS, (), MEDIUM, (FieldId(94), Call("nvmlDeviceGetPcieReplayCounter")), dcgm=202),
    GpuField("nvlink_data_receive", NVLINK_BYTES, ("receive",), MEDIUM, (FieldId(139, ALL_LINKS),), 1024),
    GpuField("nvlink_data_transmit", NVLINK_BYTES, ("transmit",), MEDIUM, (FieldId(138, ALL_LINKS),), 1024),
    GpuField("processes", PROCESSES, (), MEDIUM, (Call("nvmlDeviceGetComputeRunningProcesses", (), "len"),), 1, 0, 1e5),
    GpuField(
        "encoder",
        CODEC_UTILIZATION,
        ("encoder",),
        MEDIUM,
        (Call("nvmlDeviceGetEncoderUtilization", (), 0),),
        0.01,
        0,
        1,
        206,
    ),
    GpuField(
        "decoder",
        CODEC_UTILIZATION,
        ("decoder",),
        MEDIUM,
        (Call("nvmlDeviceGetDecoderUtilization", (), 0),),
        0.01,
        0,
        1,
        207,
    ),
    _pcie_error("correctable", 173),
    _pcie_error("non_fatal", 179),
    _pcie_error("fatal", 180),
    _pcie_error("bad_tlp", 176),
    _pcie_error("bad_dllp", 178),
    _pcie_error("naks_received", 174),
    _pcie_error("naks_sent", 177),
    _pcie_error("receiver", 175),
    _pcie_error("lcrc", 182),
    GpuField("persistence", PERSISTENCE, (), SLOW, (Call("nvmlDeviceGetPersistenceMode"),), 1, 0, 1),
    GpuField("ecc_mode", ECC_MODE, ("current",), SLOW, (Call("nvmlDeviceGetEccMode", (), 0),), 1, 0, 1),
    GpuField("ecc_mode_pending", ECC_MODE, ("pending",), SLOW, (Call("nvmlDeviceGetEccMode", (), 1),), 1, 0, 1),
    GpuField("mig_mode", MIG_MODE, ("current",), SLOW, (Call("nvmlDeviceGetMigMode", (), 0),), 1, 0, 1),
    GpuField("mig_mode_pending", MIG_MODE, ("pending",), SLOW, (Call("nvmlDeviceGetMigMode", (), 1),), 1, 0, 1),
    *(
        GpuField(
            f"remap_banks_{name}",
            REMAP_BANKS,
            (name,),
            SLOW,
            (Call("nvmlDeviceGetRowRemapperHistogram", (), name),),
            dcgm=dcgm,
        )
        for name, dcgm in (("max", 385), ("high", 386), ("partial", 387), ("low", 388), ("none", 389))
    ),
    _limit("default", 189, Call("nvmlDeviceGetPowerManagementDefaultLimit"), STATIC, 163),
    _limit("min", 187, Call("nvmlDeviceGetPowerManagementLimitConstraints", (), 0), STATIC, 161),
    _limit("max", 188, Call("nvmlDeviceGetPowerManagementLimitConstraints", (), 1), STATIC, 162),
    GpuField("clock_max_sm", CLOCK_MAX, ("sm",), STATIC, (Call("nvmlDeviceGetMaxClockInfo", (1,)),), 1e6, 1, 1e10, 113),
    GpuField(
        "clock_max_memory",
        CLOCK_MAX,
        ("memory",),
        STATIC,
        (Call("nvmlDeviceGetMaxClockInfo", (2,)),),
        1e6,
        1,
        2e10,
        114,
    ),
    GpuField(
        "pcie_generation_max",
        PCIE_GENERATION,
        ("max",),
        STATIC,
        (Call("nvmlDeviceGetMaxPcieLinkGeneration"),),
        1,
        1,
        9,
        235,
    ),
    GpuField("pcie_width_max", PCIE_WIDTH, ("max",), STATIC, (Call("nvmlDeviceGetMaxPcieLinkWidth"),), 1, 1, 32, 236),
    _threshold("shutdown", 0, 159),
    _threshold("slowdown", 1, 158),
    _threshold("memory_max", 2, 151),
    _threshold("gpu_max", 3, 152),
    _margin_threshold("shutdown", 193),
    _margin_threshold("slowdown", 194),
    _margin_threshold("memory_max", 195),
    _margin_threshold("gpu_max", 196),
)

BY_KEY = {field.key: field for field in GPU_FIELDS}
BY_CADENCE: dict[str, tuple[GpuField, ...]] = {
    cadence: tuple(field for field in GPU_FIELDS if field.cadence == cadence) for cadence in INTERVALS
}
"""Cadence -> its fields, in the order in which frames carry their values."""

POSITION: dict[str, tuple[str, int]] = {
    field.key: (cadence, position) for cadence, fields in BY_CADENCE.items() for position, field in enumerate(fields)
}
"""Key -> where frames carry it."""

FAMILIES: tuple[Family, ...] = tuple(dict.fromkeys(field.family for field in GPU_FIELDS if field.family is not None))

CLOCK_EVENT_REASONS: tuple[tuple[int, str], ...] = (
    (0x1, "idle"),
    (0x2, "application_clocks"),
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal"),
    (0x40, "hw_thermal"),
    (0x80, "hw_power_brake"),
    (0x100, "display_clocks"),
)
"""Bits of the clock-event reasons mask and what they are called here (NVML header, nvmlClocksEventReasons)."""


def reasons_of(mask: int) -> tuple[str, ...]:
    """Return the names of the bits set in a clock-event reasons mask; unknown bits are named by number."""
    names = [name for bit, name in CLOCK_EVENT_REASONS if mask & bit]
    rest = mask & ~sum(bit for bit, _ in CLOCK_EVENT_REASONS)
    return (*names, f"unknown_{rest:#x}") if rest else tuple(names)
