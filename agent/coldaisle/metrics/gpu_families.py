"""The metric families of GPU quantities: names, units and the sentence that each one's HELP says."""

from coldaisle.metrics.families import Family, Kind

_GPU = ("gpu", "uuid")


def _gauge(name: str, help: str, unit: str = "", *labels: str) -> Family:
    return Family(name, Kind.GAUGE, help, _GPU + labels, unit)


def _counter(name: str, help: str, unit: str = "", *labels: str) -> Family:
    return Family(name, Kind.COUNTER, help, _GPU + labels, unit)


TEMPERATURE = _gauge(
    "dgx_gpu_temperature_celsius", "Temperature of the GPU core or its memory, from NVML or DCGM.", "celsius", "sensor"
)
MARGIN = _gauge(
    "dgx_gpu_thermal_margin_celsius",
    "Degrees left to the GPU's own thermal limit (T.Limit; Hopper and later). Negative: past it.",
    "celsius",
)
MARGIN_THRESHOLD = _gauge(
    "dgx_gpu_thermal_margin_threshold_celsius",
    "Thermal margin at which the hardware acts, as the device states it (signed; Hopper and later).",
    "celsius",
    "threshold",
)
THRESHOLD = _gauge(
    "dgx_gpu_temperature_threshold_celsius",
    "Absolute temperature at which the hardware acts, as the device states it.",
    "celsius",
    "threshold",
)
POWER = _gauge("dgx_gpu_power_watts", "Power drawn by the GPU, instantaneous where the device offers it.", "watts")
POWER_AVERAGE = _gauge(
    "dgx_gpu_power_average_watts", "Power drawn by the GPU, averaged over one second by the driver.", "watts"
)
POWER_LIMIT = _gauge(
    "dgx_gpu_power_limit_watts",
    "Power limits: enforced (the lowest of all limiters, a BMC's included), requested, default, min and max.",
    "watts",
    "kind",
)
ENERGY = _counter(
    "dgx_gpu_energy_joules_total", "Energy drawn since the driver was loaded, from the GPU's own counter.", "joules"
)
CLOCK = _gauge("dgx_gpu_clock_hertz", "Present clock of the SMs or the memory.", "hertz", "clock")
CLOCK_MAX = _gauge("dgx_gpu_clock_max_hertz", "Highest clock of the SMs or the memory.", "hertz", "clock")
UTILIZATION = _gauge(
    "dgx_gpu_utilization_ratio",
    "Share of time in which at least one kernel ran (NVML). Says nothing about how much of the GPU worked.",
    "ratio",
)
COPY_UTILIZATION = _gauge(
    "dgx_gpu_memory_copy_utilization_ratio", "Share of time in which memory was read or written (NVML).", "ratio"
)
CODEC_UTILIZATION = _gauge(
    "dgx_gpu_codec_utilization_ratio", "Share of time in which the video encoder or decoder worked.", "ratio", "engine"
)
MEMORY = _gauge("dgx_gpu_memory_bytes", "Device memory by state: used, free, reserved by the driver.", "bytes", "state")
MEMORY_SIZE = _gauge("dgx_gpu_memory_size_bytes", "Device memory in all.", "bytes")
CLOCK_EVENT_SECONDS = _counter(
    "dgx_gpu_clock_event_seconds_total",
    "Time in which the driver held clocks down, by cause, from the driver's own counters.",
    "seconds",
    "reason",
)
PSTATE = _gauge("dgx_gpu_performance_state", "Performance state, 0 (fastest) to 15.")
PERSISTENCE = _gauge("dgx_gpu_persistence_mode", "1 if the driver stays loaded without clients.")
ECC_MODE = _gauge(
    "dgx_gpu_ecc_mode", "1 if ECC is on, by when it applies: current or pending (next reset).", "", "when"
)
MIG_MODE = _gauge(
    "dgx_gpu_mig_mode", "1 if MIG is on, by when it applies: current or pending (next reset).", "", "when"
)
GRAPHICS = _gauge("dgx_gpu_graphics_active_ratio", "Share of time in which any engine worked (GPM or DCGM).", "ratio")
SM_ACTIVE = _gauge(
    "dgx_gpu_sm_active_ratio", "Share of SM-cycles with at least one resident warp (GPM or DCGM).", "ratio"
)
SM_OCCUPANCY = _gauge(
    "dgx_gpu_sm_occupancy_ratio", "Resident warps as a share of the most possible (GPM or DCGM).", "ratio"
)
PIPE = _gauge(
    "dgx_gpu_pipe_active_ratio",
    "Share of cycles in which a pipe worked: tensor (any type), its kinds hmma, imma, dfma, dmma, and the rest.",
    "ratio",
    "pipe",
)
DRAM = _gauge("dgx_gpu_dram_active_ratio", "Share of cycles in which device memory moved data (GPM or DCGM).", "ratio")
PCIE_RATE = _gauge(
    "dgx_gpu_pcie_throughput_bytes_per_second",
    "PCIe traffic over the last interval; receive is host to device.",
    "",
    "direction",
)
NVLINK_RATE = _gauge(
    "dgx_gpu_nvlink_throughput_bytes_per_second", "NVLink traffic of all links over the last interval.", "", "direction"
)
NVLINK_BYTES = _counter(
    "dgx_gpu_nvlink_data_bytes_total",
    "NVLink payload moved by all links since the driver was loaded.",
    "bytes",
    "direction",
)
PCIE_GENERATION = _gauge("dgx_gpu_pcie_link_generation", "PCIe generation: current and max.", "", "kind")
PCIE_WIDTH = _gauge("dgx_gpu_pcie_link_width", "PCIe lanes: current and max.", "", "kind")
PCIE_REPLAYS = _counter("dgx_gpu_pcie_replays_total", "PCIe packets sent again.")
PCIE_ERRORS = _counter("dgx_gpu_pcie_errors_total", "PCIe errors by type, from the GPU's own counters.", "", "type")
ECC_ERRORS = _counter(
    "dgx_gpu_ecc_errors_total",
    "ECC errors: corrected or uncorrected; volatile (since the driver was loaded) or aggregate (life time).",
    "",
    "error",
    "scope",
)
REMAPPED = _counter(
    "dgx_gpu_remapped_rows_total", "Memory rows replaced by spares over the GPU's life, by cause.", "", "cause"
)
REMAP_PENDING = _gauge("dgx_gpu_row_remap_pending", "1 if a row waits for a reset to be replaced.")
REMAP_FAILURE = _gauge("dgx_gpu_row_remap_failure", "1 if a row could not be replaced: the GPU is due for exchange.")
REMAP_BANKS = _gauge("dgx_gpu_row_remap_banks", "Memory banks by how many spare rows are left.", "", "availability")
RECOVERY = _gauge(
    "dgx_gpu_recovery_action",
    "What the driver asks for: 0 none, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset, 5 IMEX, "
    "6 bus reset, 7 system reboot.",
)
PROCESSES = _gauge("dgx_gpu_compute_processes", "Processes with a compute context on the GPU.")
