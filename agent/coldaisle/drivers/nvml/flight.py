"""The flight recorder: which vendor call each thread of the child is in, readable from outside after a crash.

A memfd shared by the supervisor and its child, one slot a GPU and one for calls that concern the library. The child
writes two numbers before each call and one after; the supervisor reads them when the child is silent or dead.
"""

import mmap
import os
import struct

from coldaisle.metrics.gpu_fields import GPU_FIELDS, Call

SLOTS = 65
"""64 GPUs (NVML knows no more on one node) and the library."""
LIBRARY = SLOTS - 1
_SLOT = struct.Struct("<dq")
SIZE = SLOTS * _SLOT.size


class Flight(tuple[float, str]):
    """(CLOCK_MONOTONIC at which the pending call began, name of the call)."""

    __slots__ = ()


class FlightRecorder:
    """One side of the shared page.

    Args:
        fd: the memfd, `SIZE` bytes.
        names: call names by number; both sides must pass the same ones. Unknown numbers read as "a vendor call".
    """

    def __init__(self, fd: int, names: tuple[str, ...]) -> None:
        self._map = mmap.mmap(fd, SIZE)
        self._names = names
        self._numbers = {name: number for number, name in enumerate(names)}

    def enter(self, slot: int, name: str, now: float) -> None:
        """Note that `slot`'s thread enters call `name`."""
        _SLOT.pack_into(self._map, slot * _SLOT.size, now, self._numbers.get(name, -1))

    def leave(self, slot: int) -> None:
        """Note that the call has returned."""
        _SLOT.pack_into(self._map, slot * _SLOT.size, 0.0, -1)

    def pending(self, slot: int) -> Flight | None:
        """Return the call that `slot`'s thread is in, None if it is in none."""
        since, number = _SLOT.unpack_from(self._map, slot * _SLOT.size)
        if since == 0.0:
            return None
        name = self._names[number] if 0 <= number < len(self._names) else "a vendor call"
        return Flight((since, name))

    def close(self) -> None:
        """Unmap the page."""
        self._map.close()


def create() -> int:
    """Return a new memfd of `SIZE` zero bytes."""
    fd = os.memfd_create("coldaisle-flight", os.MFD_CLOEXEC)
    os.ftruncate(fd, SIZE)
    return fd


_LIBRARY_CALLS = (
    "nvmlInit",
    "nvmlShutdown",
    "nvmlSystemGetDriverVersion",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetVbiosVersion",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetBoardPartNumber",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetMemoryInfo",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleGet",
    "nvmlGpmMetricsGet",
)
CALLS = tuple(
    sorted(
        {
            *_LIBRARY_CALLS,
            *(query.function for field in GPU_FIELDS for query in field.queries if isinstance(query, Call)),
        }
    )
)
"""Every vendor call by name, in the order that both sides of a flight recorder share."""
