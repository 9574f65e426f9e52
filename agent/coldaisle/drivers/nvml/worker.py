"""One thread for one GPU inside the vendor child: opens it, reads what is due, sends frames."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from coldaisle.domain.errors import DriverAbsent, DriverMismatch, Transient, VendorError
from coldaisle.drivers.nvml.errors import translate
from coldaisle.drivers.nvml.flight import FlightRecorder
from coldaisle.drivers.nvml.gpu_reader import Frame, GpuReader
from coldaisle.metrics.gpu_fields import BRISK, FAST, INTERVALS

REOPEN_TICKS = 10
"""A GPU that could not be opened or failed as a whole is tried again after so many ticks: a look-up on a lost GPU
costs milliseconds in the driver and its answer does not change from second to second."""

Send = Callable[[dict[str, Any]], None]


class GpuWorker(threading.Thread):
    """Reads GPU `index` each time a tick number is put into its inbox; never blocks anyone else.

    Args:
        vendor: pynvml or what stands for it.
        index: NVML index.
        recorder: notes each call, so that a hang or crash can be pinned on this GPU.
        send: hands one message to the main process; thread-safe.
        fatal: called with an error that concerns the whole library.
        clock: monotonic seconds.
        wanted: catalogue keys to read, None for all.
    """

    def __init__(
        self,
        vendor: Any,
        index: int,
        recorder: FlightRecorder,
        send: Send,
        fatal: Callable[[VendorError], None],
        clock: Callable[[], float] = time.monotonic,
        wanted: frozenset[str] | None = None,
    ) -> None:
        super().__init__(name=f"gpu-{index}", daemon=True)
        self.index = index
        self.inbox: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self.busy = False
        self.handle: Any = None
        self._vendor = vendor
        self._recorder = recorder
        self._send = send
        self._fatal = fatal
        self._clock = clock
        self._wanted = wanted
        self._reader: GpuReader | None = None
        self._down = ""
        self._reopen_at = 0
        self._told: dict[str, dict[str, str]] = {}

    def run(self) -> None:
        """Serve ticks until None arrives."""
        while (tick := self.inbox.get()) is not None:
            self.busy = True
            try:
                self.turn(tick)
            finally:
                self.busy = False

    def guard(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call the vendor under the flight recorder."""
        self._recorder.enter(self.index, name, self._clock())
        try:
            return function(*args)
        finally:
            self._recorder.leave(self.index)

    def turn(self, tick: int) -> None:
        """Read what is due at tick number `tick`."""
        try:
            if self._reader is None:
                if self._down and tick < self._reopen_at:
                    return
                self._open()
                due = list(INTERVALS)
            else:
                due = [cadence for cadence in INTERVALS if self._is_due(cadence, tick)]
            for cadence in due:
                self._collect(cadence)
        except self._vendor.NVMLError as error:
            self._failed(translate(getattr(error, "value", 999), f"GPU {self.index}"), tick)
        except VendorError as error:
            self._failed(error, tick)
        except Exception as error:  # noqa: BLE001  a dead thread would leave its GPU late for ever, with no reason given
            what = f"{type(error).__name__} while reading GPU {self.index}: {error}"
            self._failed(Transient(what), tick)

    def _is_due(self, cadence: str, tick: int) -> bool:
        # GPUs take their slow reads on different ticks: eight energy reads at once would hold the driver for 25 ms.
        return cadence == FAST or (tick + self.index) % INTERVALS[cadence] == 0

    def _collect(self, cadence: str) -> None:
        assert self._reader is not None
        start = self._clock()
        frame = self._reader.read(cadence)
        message = {
            "k": "f",
            "i": self.index,
            "c": cadence,
            "t": frame.taken_at,
            "s": round(self._clock() - start, 6),
            "v": frame.values,
        }
        if frame.absent != self._told.get(cadence):
            self._told[cadence] = frame.absent
            message["a"] = frame.absent
        if frame.dropped:
            message["d"] = frame.dropped
        self._send(message)

    def _open(self) -> None:
        vendor = self._vendor
        self.handle = self.guard("nvmlDeviceGetHandleByIndex", vendor.nvmlDeviceGetHandleByIndex, self.index)
        identity = self._identity()
        self._reader = GpuReader(vendor, self.handle, self._clock, self.guard, self._wanted)
        # Brisk and fast first frames settle which queries this GPU supports, so that sources are known.
        for cadence in (FAST, BRISK):
            self._reader.read(cadence)
        self._told = {}
        self._down = ""
        self._send(
            {
                "k": "gpu",
                "i": self.index,
                "id": identity,
                "sources": self._reader.sources(),
                "gpm_absent": self._reader.gpm_absent,
            }
        )

    def _identity(self) -> dict[str, Any]:
        vendor = self._vendor
        uuid = _text(self.guard("nvmlDeviceGetUUID", vendor.nvmlDeviceGetUUID, self.handle))
        pci = self._ask("nvmlDeviceGetPciInfo")
        capability = self._ask("nvmlDeviceGetCudaComputeCapability")
        return {
            "uuid": uuid,
            "name": _text(self._ask("nvmlDeviceGetName")),
            "serial": _text(self._ask("nvmlDeviceGetSerial")),
            "pci_bus_id": _text(getattr(pci, "busId", "")).lower(),
            "vbios": _text(self._ask("nvmlDeviceGetVbiosVersion")),
            "architecture": _ARCHITECTURES.get(self._ask("nvmlDeviceGetArchitecture"), ""),
            "minor": self._ask("nvmlDeviceGetMinorNumber"),
            "cuda_capability": ".".join(str(part) for part in capability) if capability else "",
            "board_part_number": _text(self._ask("nvmlDeviceGetBoardPartNumber")),
        }

    def _ask(self, function: str) -> Any:
        """Return an optional piece of identity, None if this GPU or driver does not say."""
        method = getattr(self._vendor, function, None)
        if method is None:
            return None
        try:
            return self.guard(function, method, self.handle)
        except self._vendor.NVMLError as error:
            failure = translate(getattr(error, "value", 999), function)
            if failure.slug in ("lost", "reset_required", "driver_mismatch"):
                raise failure from error
            return None

    def _failed(self, error: VendorError, tick: int) -> None:
        if isinstance(error, DriverMismatch | DriverAbsent) or error.code == 1:
            self._fatal(error)
            return
        if self._reader is not None:
            self._reader = None
        self._reopen_at = tick + REOPEN_TICKS
        if self._down != error.slug:
            self._down = error.slug
            self._send(
                {"k": "down", "i": self.index, "slug": error.slug, "message": str(error), "remedy": error.remedy}
            )


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


_ARCHITECTURES = {
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
}
"""nvmlDeviceArchitecture_t (nvml.h)."""

__all__ = ["Frame", "GpuWorker", "Send"]
