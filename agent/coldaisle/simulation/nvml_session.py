"""What every call of the simulated NVML goes through: session, handles, faults. No call but a setter does I/O."""

import ctypes
import signal
import threading
import time
from typing import Any

import pynvml

from coldaisle.domain.errors import ColdaisleError
from coldaisle.simulation import profiles
from coldaisle.simulation.control import Client, ControlError
from coldaisle.simulation.machine import GLITCH_READS, GPU, GPU_SIZE, NODE, NODE_SIZE, Reader
from coldaisle.simulation.nvml_fields import Field, fields_of

POLL = 0.05
"""Seconds between two looks of a hung call at whether its hang is over."""

_TROUBLE = GPU["trouble"]
_NODE_TROUBLE = NODE["trouble"]


class Session:
    """A session with the machine in `directory`; nothing is opened before `nvmlInit`."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._sessions = 0
        self._reader: Reader | None = None
        self._values: Any = ()
        self._profile = profiles.H200
        self._fields: dict[int, Field] = {}
        self._handles: list[Any] = []
        self._memory: list[Any] = []  # what the handles point at: a handle is an address, as in the real library
        self._bases: dict[int, int] = {}
        self._seen: dict[int, tuple[int, int]] = {}
        self._client: Client | None = None
        self._client_lock = threading.Lock()

    def nvmlInit(self) -> None:  # noqa: N802  pynvml's name
        """Open a session. A machine whose process never ran is a driver that is not loaded."""
        try:
            reader = Reader(self._directory)
        except ColdaisleError:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED) from None
        while reader.values[NODE["init_hang"]]:
            time.sleep(POLL)  # the hang itself
        if code := int(reader.values[NODE["init_error"]]):
            reader.close()
            raise pynvml.NVMLError(code)
        if self._sessions == 0:
            self._attach(reader)
        else:
            reader.close()
        self._sessions += 1

    def nvmlInitWithFlags(self, flags: int) -> None:  # noqa: ARG002, N802  pynvml's signature
        """Open a session; the simulated machine has no use for the flags."""
        self.nvmlInit()

    def nvmlShutdown(self) -> None:  # noqa: N802  pynvml's name
        """Close a session."""
        if not self._sessions:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        self._sessions -= 1
        if self._sessions == 0:
            with self._client_lock:
                if self._client is not None:
                    self._client.close()
                    self._client = None
            # Other threads may be inside a read: the mapping goes when the last of them lets go of it.
            self._reader = None

    def _attach(self, reader: Reader) -> None:
        self._reader = reader
        self._values = reader.values
        self._profile = profiles.PROFILES[reader.profile]
        self._fields = fields_of(self._profile)
        self._memory = [ctypes.create_string_buffer(8) for _ in range(reader.gpus)]
        self._handles = [ctypes.cast(memory, pynvml.c_nvmlDevice_t) for memory in self._memory]
        self._bases = {id(handle): reader.base(index) for index, handle in enumerate(self._handles)}
        self._seen = {}

    def _library(self) -> None:
        """Pass a call that concerns no single GPU. Raises NVMLError, or blocks, as the machine wants it."""
        if not self._sessions:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        values = self._values
        if values[_NODE_TROUBLE]:
            while values[NODE["hang"]]:
                time.sleep(POLL)  # the hang itself
            if code := int(values[NODE["session_error"]]):
                raise pynvml.NVMLError(code)

    def _gpu(self, handle: Any) -> int:
        """Pass a call on one GPU and return where its values begin; may raise, block, or end the process."""
        if not self._sessions:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        base = self._bases.get(id(handle))
        if base is None:
            base = self._find(handle)
        values = self._values
        if values[base + _TROUBLE] or values[_NODE_TROUBLE]:
            self._trouble(base)
        return base

    def _find(self, handle: Any) -> int:
        """Return the base of a handle that is another object with the same address, as one out of an event."""
        if isinstance(handle, pynvml.c_nvmlDevice_t):
            address = ctypes.cast(handle, ctypes.c_void_p).value
            for index, memory in enumerate(self._memory):
                if ctypes.addressof(memory) == address:
                    return NODE_SIZE + index * GPU_SIZE
        raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    def _trouble(self, base: int) -> None:
        values = self._values
        if values[base + GPU["segfault"]]:
            # To this very thread, at once, as a bad pointer would: `os.kill` may be delivered to another, later.
            signal.raise_signal(signal.SIGSEGV)
        while values[base + GPU["hang"]]:
            time.sleep(POLL)  # the hang itself
        self._library()
        if code := int(values[base + GPU["error"]]):
            raise pynvml.NVMLError(code)
        if values[base + GPU["missing"]]:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    @staticmethod
    def _index(base: int) -> int:
        return (base - NODE_SIZE) // GPU_SIZE

    def _visible(self) -> list[int]:
        missing = GPU["missing"]
        return [index for index, base in enumerate(self._bases.values()) if not self._values[base + missing]]

    def _glitch(self, place: int) -> bool:
        """Say whether this read of a sensor is one of those that a glitch spoils; `place` is of its glitch slot."""
        packed = int(self._values[place])
        if not packed:
            return False
        generation, reads = divmod(packed, GLITCH_READS)
        seen, answered = self._seen.get(place, (0, 0))
        if seen != generation:
            answered = 0
        if answered >= reads:
            return False
        self._seen[place] = (generation, answered + 1)
        return True

    def _control(self, operation: str, **arguments: Any) -> None:
        """Ask the machine's process to do something; its refusal is the NVMLError it stands for."""
        with self._client_lock:
            if self._client is None:
                self._client = Client(self._directory)
            try:
                self._client.request(operation, **arguments)
            except ControlError as error:
                raise pynvml.NVMLError(error.code or pynvml.NVML_ERROR_UNKNOWN) from None
