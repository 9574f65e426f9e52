"""What the simulated machines are: one profile a product. Each number says where it comes from.

Sources: [M] read on a real H200 (driver 580.159.04, 2026-12-01); [K] the mock NVML configurations of NVIDIA's
k8s-test-infra (plausible, not authoritative); [S] NVSentinel ADR-042 (T.Limit offsets by product); [D] NVIDIA's
product pages and DGX user guides (links, PCIe, memory); [E] our estimate, scaled from the H200 by power.
"""

from typing import NamedTuple


class Profile(NamedTuple):
    """One DGX product. Watts, degrees Celsius, MHz, bytes; resistances in degrees per watt."""

    name: str
    product: str
    """DMI product name."""
    gpu_name: str
    architecture: int
    """nvmlDeviceArchitecture_t."""
    compute: tuple[int, int]
    pci_device: int
    part_number: str
    vbios: str
    memory_bytes: int
    reserved_bytes: int
    power_min: int
    power_max: int
    power_default: int
    power_idle: float
    """Without any context."""
    power_context: float
    """Idle, with a context held: clocks stay at their maximum."""
    sm_min: int
    sm_max: int
    memory_clock: int
    gpu_max: int
    """Maximum operating temperature: margin 0 where the product has T.Limit."""
    slowdown: int
    shutdown: int
    memory_max: int
    margin: bool
    """Whether T.Limit margins and offsets answer (Hopper and later)."""
    gpm: bool
    nvlinks: int
    nvlink_bytes: float
    """Bytes per second, direction and link."""
    pcie_generation: int
    pcie_bytes: float
    """Bytes per second and direction that a copy reaches."""
    core_resistance: float
    """Core above cold plate, per watt of core power."""
    sink_resistance: float
    """Cold plate above its air, per watt."""
    power_average_field: bool
    """Whether field 185 (1 s average) answers; GA100 has none (NVML header)."""


A100 = Profile(
    name="dgx-a100",
    product="DGXA100",
    gpu_name="NVIDIA A100-SXM4-80GB",
    architecture=7,
    compute=(8, 0),
    pci_device=0x20B210DE,
    part_number="692-2G506-0212-002",
    vbios="92.00.45.00.03",
    memory_bytes=85_899_345_920,
    reserved_bytes=600_000_000,
    power_min=100,  # [K]
    power_max=400,  # [K]
    power_default=400,  # [K]
    power_idle=52.0,  # [E]
    power_context=75.0,  # [E]
    sm_min=210,  # [K]
    sm_max=1410,  # [K]
    memory_clock=1593,  # [K]
    gpu_max=83,  # [K]
    slowdown=87,  # [K]
    shutdown=92,  # [K]
    memory_max=95,  # [E]
    margin=False,  # [S] absolute thresholds only
    gpm=False,  # [D] GPM begins with Hopper
    nvlinks=12,  # [D]
    nvlink_bytes=25e9,  # [D]
    pcie_generation=4,  # [D]
    pcie_bytes=25e9,  # [E]
    core_resistance=0.0543,  # [E]
    sink_resistance=0.0175,  # [E]
    power_average_field=False,
)

H200 = Profile(
    name="dgx-h200",
    product="DGXH200",
    gpu_name="NVIDIA H200",  # [M]
    architecture=9,  # [M]
    compute=(9, 0),  # [M]
    pci_device=590680286,  # [M]
    part_number="692-2G520-0280-001",
    vbios="96.00.A5.00.1A",  # [M]
    memory_bytes=150_754_820_096,  # [M]
    reserved_bytes=644_939_776,  # [M]
    power_min=200,  # [M]
    power_max=700,  # [M]
    power_default=700,  # [M]
    power_idle=82.0,  # [M]
    power_context=124.9,  # [M]
    sm_min=345,  # [M]
    sm_max=1980,  # [M]
    memory_clock=3201,  # [M]
    gpu_max=87,  # [M]
    slowdown=89,  # [M] T.Limit -2
    shutdown=95,  # [M] T.Limit -8
    memory_max=95,  # [M]
    margin=True,  # [M]
    gpm=True,  # [M]
    nvlinks=18,  # [D]
    nvlink_bytes=25e9,  # [D]
    pcie_generation=5,  # [M]
    pcie_bytes=55.9e9,  # [M]
    core_resistance=0.031,  # [M] fitted on the recorded loads
    sink_resistance=0.010,  # [M] fitted on the recorded loads
    power_average_field=True,  # [M]
)

H100 = H200._replace(
    name="dgx-h100",
    product="DGXH100",
    gpu_name="NVIDIA H100 80GB HBM3",
    pci_device=0x233010DE,
    part_number="692-2G520-0200-000",
    vbios="96.00.89.00.01",
    memory_bytes=85_520_809_984,
    power_idle=70.0,  # [E]
    power_context=115.0,  # [E]
    memory_clock=2619,  # [K]
    shutdown=92,  # [K]
)

B200 = H200._replace(
    name="dgx-b200",
    product="DGXB200",
    gpu_name="NVIDIA B200",
    architecture=10,
    compute=(10, 0),
    pci_device=0x290110DE,
    part_number="692-2G525-0220-001",
    vbios="97.00.82.00.0B",
    memory_bytes=192_265_846_784,  # [E]
    power_min=400,  # [K]
    power_max=1200,  # [K]
    power_default=1000,  # [K]
    power_idle=140.0,  # [E]
    power_context=190.0,  # [E]
    sm_max=2100,  # [K]
    memory_clock=3996,  # [E]
    slowdown=90,  # [K]; [S] says T.Limit -3, so margin 0 is at 87
    nvlink_bytes=50e9,  # [D]
    core_resistance=0.0217,  # [E]
    sink_resistance=0.007,  # [E]
)

PROFILES: tuple[Profile, ...] = (A100, H100, H200, B200)
BY_NAME = {profile.name: profile for profile in PROFILES}

DRIVER_VERSION = "580.159.04"
NVML_VERSION = "13.580.159.04"
CUDA_VERSION = 13000

# The PCI addresses that a DGX H100's eight GPUs have; only their being distinct and sorted matters here.
_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)


def pci_bus(index: int) -> int:
    """Return the PCI bus number of GPU `index`."""
    return _BUSES[index] if index < len(_BUSES) else 0xE0 + index - len(_BUSES)


def bus_id(index: int) -> str:
    """Return the PCI address of GPU `index` as NVML writes it."""
    return f"00000000:{pci_bus(index):02X}:00.0"


def uuid(profile: Profile, index: int) -> str:
    """Return the same UUID for the same GPU of the same product, in every run."""
    tag = PROFILES.index(profile) + 1
    return f"GPU-c01da151-e{tag:03x}-4000-8000-{index:012x}"


def serial(index: int) -> str:
    """Return the board serial number of GPU `index`."""
    return f"16500000{index:05d}"
