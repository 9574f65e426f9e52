"""The machine's memory: a file of 8-byte floats that one process writes and any process maps and reads, lock-free.

An aligned 8-byte value is read whole, so single sensors need no lock; what must fit together (GPM samples) is read
under a sequence number that is odd while the writer is at it. A read costs well under a microsecond and no system call.
"""

import mmap
import os
from array import array
from typing import NamedTuple

from coldaisle.domain.errors import ColdaisleError

FILE = "machine"
SOCKET = "control.sock"
KMSG = "kmsg"

MAGIC = 4_830_177_101.0
"""Changes with the layout, so that a reader of another version says so instead of reading nonsense."""

_NODE = ("magic", "gpus", "profile", "trouble", "init_error", "init_hang", "hang", "session_error")
NODE_SIZE = 64
_GPU = (
    "sequence", "uptime", "power", "power_average", "energy", "core", "memory_temperature", "clock", "reasons",
    "utilization", "copy_utilization", "memory_used", "processes", "requested", "enforced",
    "ns_power_cap", "ns_sync_boost", "ns_sw_thermal", "ns_hw_thermal", "ns_power_brake",
    "a_graphics", "a_sm", "a_occupancy", "a_integer", "a_tensor", "a_dfma", "a_hmma", "a_dmma", "a_imma", "a_dram",
    "a_fp64", "a_fp32", "a_fp16", "b_pcie_tx", "b_pcie_rx", "b_nvlink_rx", "b_nvlink_tx",
    "sbe_volatile", "dbe_volatile", "sbe_aggregate", "dbe_aggregate",
    "remap_correctable", "remap_uncorrectable", "remap_pending", "remap_failure", "recovery",
    "pcie_generation", "pcie_width", "pcie_replays",
    "trouble", "error", "hang", "segfault", "gpm_error", "missing",
    "glitch_temperature", "glitch_power", "glitch_gpm", "glitch_energy",
)  # fmt: skip
GPU_SIZE = 64
assert len(_GPU) <= GPU_SIZE

NODE = {name: place for place, name in enumerate(_NODE)}
GPU = {name: place for place, name in enumerate(_GPU)}

COUNTERS_FROM = GPU["a_graphics"]
COUNTERS_TO = GPU["b_nvlink_tx"] + 1
"""The accumulators that a GPM sample copies, `uptime` apart."""

GLITCH_READS = 1_000_000
"""A glitch slot holds generation * GLITCH_READS + reads: each reader counts for itself how many it has answered."""

_TORN_TRIES = 200


class Snapshot(NamedTuple):
    """The accumulators of one GPU at one moment."""

    uptime: float
    counters: tuple[float, ...]


class Writer:
    """Creates and writes the file; one per machine.

    Args:
        directory: where it lies; must exist.
        gpus: how many records.
        profile: index into `profiles.PROFILES`.
    """

    def __init__(self, directory: str, gpus: int, profile: int) -> None:
        size = 8 * (NODE_SIZE + gpus * GPU_SIZE)
        path = f"{directory}/{FILE}"
        fresh = f"{path}.new"
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o640)
        try:
            os.ftruncate(fd, size)
            self._map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        self._values = memoryview(self._map).cast("d")
        self.node = array("d", bytes(8 * NODE_SIZE))
        self.gpus = [array("d", bytes(8 * GPU_SIZE)) for _ in range(gpus)]
        self.node[NODE["magic"]] = MAGIC
        self.node[NODE["gpus"]] = gpus
        self.node[NODE["profile"]] = profile
        self.publish()
        os.rename(fresh, path)  # noqa: PTH104  pathlib costs the readers memory. Readers of an earlier run keep their own file

    def publish(self) -> None:
        """Copy the prepared records into the file."""
        values = self._values
        values[0:NODE_SIZE] = self.node
        base = NODE_SIZE
        for record in self.gpus:
            odd = record[0] + 1
            values[base] = odd
            values[base + 1 : base + GPU_SIZE] = record[1:]
            record[0] = odd + 1
            values[base] = odd + 1
            base += GPU_SIZE

    def close(self) -> None:
        """Unmap the file; it stays for whoever still reads it."""
        self._values.release()
        self._map.close()


class Reader:
    """Maps the file of a running machine. Raises ColdaisleError if there is none.

    `values[place]` is a value; a GPU's record begins at `base(index)`.
    """

    def __init__(self, directory: str) -> None:
        path = f"{directory}/{FILE}"
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ColdaisleError(
                f"no simulated machine at {path}: {error.strerror}", remedy="start the simulator first"
            ) from error
        try:
            self._map = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(fd)
        self.values = memoryview(self._map).cast("d")
        if self.values[0] != MAGIC:
            raise ColdaisleError(f"{path} was written by another version", remedy="restart the simulator")
        self.gpus = int(self.values[NODE["gpus"]])
        self.profile = int(self.values[NODE["profile"]])

    @staticmethod
    def base(index: int) -> int:
        """Return the place of the first value of GPU `index`."""
        return NODE_SIZE + index * GPU_SIZE

    def snapshot(self, index: int) -> Snapshot:
        """Return accumulators that belong together."""
        values = self.values
        base = NODE_SIZE + index * GPU_SIZE
        uptime_at = base + 1
        begin, end = base + COUNTERS_FROM, base + COUNTERS_TO
        for _ in range(_TORN_TRIES):
            sequence = values[base]
            if sequence % 2:
                continue
            found = Snapshot(values[uptime_at], tuple(values[begin:end]))
            if values[base] == sequence:
                return found
        return Snapshot(values[uptime_at], tuple(values[begin:end]))  # the writer died half-way: all there will be

    def close(self) -> None:
        """Unmap the file."""
        self.values.release()
        self._map.close()
