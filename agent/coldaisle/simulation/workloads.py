"""Loads that a simulated GPU can run, as measured on a real H200, and schedules of loads that come and go.

Activities are means of 26 s recordings of a real H200 (the first sixth of each left out), in percent of the busy phase
for loads that pause; `watts` is what the load would draw at maximum clock on an H200 (700 W) with no cap.
"""

import random
from typing import NamedTuple


class Load(NamedTuple):
    """One labelled load. Percent 0-100, watts on the H200's scale, bytes per second, seconds."""

    name: str
    watts: float
    graphics: float = 0.0
    sm: float = 0.0
    occupancy: float = 0.0
    integer: float = 0.0
    tensor: float = 0.0
    tensor_type: str = "hmma"
    dram: float = 0.0
    fp64: float = 0.0
    fp32: float = 0.0
    fp16: float = 0.0
    pcie_tx: float = 0.0
    pcie_rx: float = 0.0
    nvlink: float = 0.0
    """Share of the links' bandwidth, both directions, 0-1: only where several GPUs work on one job."""
    utilization: float = 0.0
    copy_utilization: float = 0.0
    jitter: float = 0.01
    """Relative spread of activity and power from one step to the next."""
    period: float = 0.0
    """Length of a work-and-pause cycle; 0: no pauses."""
    duty: float = 1.0
    """Share of the period that is work."""
    pause_watts: float = 124.9
    context: bool = True
    """Whether a process holds the GPU."""
    memory: float = 0.0
    """Share of the memory that is allocated, 0-1."""


MB = 1e6
_TRAIN = Load(
    "train_healthy_bf16", 896, 98.0, 92.6, 37.8, 16.1, 48.1, "hmma", 36.3, 0, 1.9, 0, 8.2 * MB, 35 * MB, 0.35, 97.9,
    47.2, 0.01, memory=0.82,
)  # fmt: skip

LOADS: tuple[Load, ...] = (
    Load("off", 82.0, jitter=0.004, context=False),
    Load("idle", 124.9, pcie_tx=0.9 * MB, pcie_rx=0.6 * MB, jitter=0.001, memory=0.004),
    Load(
        "compute_bf16_matmul", 1266, 99.0, 95.6, 14.1, 1.3, 92.7, "hmma", 17.4, 0, 0, 0, 4.8 * MB, 12.6 * MB, 0, 99.1,
        24.6, 0.005, memory=0.06,
    ),
    Load(
        "compute_fp32_matmul", 669, 98.0, 94.9, 11.9, 5.6, 0, "hmma", 3.8, 0, 74.8, 0, 1 * MB, 0.9 * MB, 0, 98.9, 5.0,
        0.005, memory=0.06,
    ),
    Load(
        "compute_fp64_matmul", 993, 97.7, 94.7, 11.5, 6.3, 92.7, "dmma", 11.6, 0, 0, 0, 1.1 * MB, 1.6 * MB, 0, 97.7,
        15.5, 0.005, memory=0.06,
    ),
    Load(
        "memory_copy", 405, 99.0, 98.5, 79.7, 7.9, 0, "hmma", 87.7, 0, 0, 0, 11 * MB, 29 * MB, 0, 99.5, 100, 0.005,
        memory=0.12,
    ),
    Load(
        "memory_elementwise", 520, 93.4, 92.7, 80.4, 17.2, 1.1, "hmma", 61.7, 0, 28.9, 0, 1.7 * MB, 5.7 * MB, 0, 93.3,
        78.5, 0.012, memory=0.12,
    ),
    Load(
        "memory_decode_gemv", 489, 90.6, 74.6, 10.5, 2.3, 2.9, "hmma", 73.8, 0, 0, 0, 15 * MB, 110 * MB, 0, 90.2, 93.7,
        0.012, memory=0.7,
    ),
    Load("single_block_kernel", 125.3, 99.9, 0.8, utilization=100, jitter=0.001, memory=0.01),
    Load(
        "launch_bound_tiny_kernels", 125.2, 28.0, 0.01, pcie_tx=28 * MB, pcie_rx=234 * MB, utilization=28.1,
        jitter=0.002, memory=0.01,
    ),
    Load(
        "launch_bound_small_matmul", 135.1, 21.2, 8.1, 1.1, 0.6, 0.2, pcie_tx=18 * MB, pcie_rx=191 * MB,
        utilization=21.2, jitter=0.015, memory=0.01,
    ),
    _TRAIN,
    Load(
        "train_fp32", 633, 99.2, 95.2, 16.2, 9.0, 3.5, "hmma", 9.1, 0, 62.9, 0, 3.3 * MB, 12.5 * MB, 0.1, 99.3, 12.2,
        0.006, memory=0.7,
    ),
    # Pauses shorter than a step stay means: the spread that they leave in 100 ms samples is the jitter.
    Load(
        "train_starved_50ms", 492.5, 56.4, 51.8, 21.6, 8.7, 26.1, "hmma", 22.4, 0, 1.0, 0, 5.5 * MB, 22 * MB, 0.2, 58.4,
        29.0, 0.1, memory=0.82,
    ),
    _TRAIN._replace(
        name="train_starved_200ms", watts=773, sm=89, graphics=98, dram=37.8, tensor=45, period=0.27, duty=0.27,
        pcie_rx=38 * MB, nvlink=0.3, pause_watts=130, jitter=0.03,
    ),
    _TRAIN._replace(
        name="train_starved_1s_every_8", watts=760, period=1.57, duty=0.373, pause_watts=149, nvlink=0.3
    ),
    Load(
        "pcie_h2d_copy", 131.4, 0.01, dram=1.1, pcie_tx=3.5e9, pcie_rx=58.6e9, utilization=99.8, copy_utilization=2,
        jitter=0.003, memory=0.02,
    ),
    Load(
        "train_h2d_heavy", 534, 65.3, 60.2, 25.1, 10.2, 30.4, "hmma", 25.2, 0, 1.2, 0, 1.22e9, 20.3e9, 0.2, 99.3, 32.9,
        0.03, memory=0.82,
    ),
    # Not on the H200 recording: two ranks over sockets (kernels spin), and a bandwidth-bound all-reduce over NVLink.
    Load(
        "nccl_wait", 150, 100, 3, 0.4, 0.5, pcie_tx=4e9, pcie_rx=4e9, utilization=100, jitter=0.01, memory=0.5,
    ),
    Load(
        "nccl_allreduce", 330, 100, 78, 9, 6, 10, "hmma", 27, 0, 1, 0, 20 * MB, 20 * MB, 0.78, 100, 30, 0.02,
        memory=0.8,
    ),
)  # fmt: skip
BY_NAME = {load.name: load for load in LOADS}
OFF = BY_NAME["off"]

_JOBS = (
    "train_healthy_bf16", "train_healthy_bf16", "train_fp32", "train_starved_50ms", "train_starved_200ms",
    "train_starved_1s_every_8", "train_h2d_heavy", "compute_bf16_matmul", "compute_fp64_matmul", "memory_copy",
    "memory_elementwise", "memory_decode_gemv", "launch_bound_small_matmul", "single_block_kernel", "pcie_h2d_copy",
    "nccl_allreduce",
)  # fmt: skip


class Schedule:
    """Jobs that come and go on groups of GPUs (half, a quarter, single ones), the same for the same seed.

    Args:
        gpus: number of GPUs.
        seed: what makes two schedules differ.
    """

    def __init__(self, gpus: int, seed: int) -> None:
        self._groups = _groups(gpus)
        numbers = range(len(self._groups))
        self._random = [random.Random(f"{seed}/{number}") for number in numbers]  # noqa: S311  a model's spread, no secret
        self._until = [0.0] * len(self._groups)
        self._working = [False] * len(self._groups)
        self._load = [OFF] * len(self._groups)

    def loads(self, now: float) -> dict[int, Load]:
        """Return the load of each GPU at `now` seconds; `now` never falls."""
        found = {}
        for number, group in enumerate(self._groups):
            while now >= self._until[number]:
                self._next(number)
            for index in group:
                found[index] = self._load[number]
        return found

    def _next(self, number: int) -> None:
        source = self._random[number]
        working = not self._working[number]
        self._working[number] = working
        if working:
            self._load[number] = BY_NAME[source.choice(_JOBS)]
            self._until[number] += source.uniform(120, 600)
        else:
            self._load[number] = source.choice((OFF, BY_NAME["idle"]))
            self._until[number] += source.uniform(15, 60)


def _groups(gpus: int) -> list[range]:
    groups = []
    start = 0
    while start < gpus:
        size = max(1, (gpus - start) // 2)
        groups.append(range(start, start + size))
        start += size
    return groups
