"""The vendor child: the only process that loads libnvidia-ml.

The main thread does nothing but receive, so that SIGTERM and `stop` always work; the library thread does what concerns
no single GPU (initialise, count, events); each GPU has a thread. All may block in the driver without holding the rest.
"""

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from coldaisle.domain.errors import Transient, VendorError
from coldaisle.drivers.nvml.errors import translate
from coldaisle.drivers.nvml.flight import LIBRARY, FlightRecorder
from coldaisle.drivers.nvml.worker import GpuWorker, Send

EVENT_WAIT_MS = 1_000
"""How long the library thread waits for NVML events at a time; bounds how long a stop has to wait for it."""
COUNT_EVERY = 10
"""Event waits between two looks at the number of GPUs: late and vanished ones are noticed within ten seconds."""
SHUTDOWN_GRACE = 3.0
"""Seconds that a stop waits for threads in driver calls and for nvmlShutdown before it leaves without them."""
_XID_EVENT = 0x8  # nvmlEventTypeXidCriticalError


class VendorChild:
    """Runs until `stop`, SIGTERM, or the main process is gone.

    Args:
        vendor: pynvml or what stands for it.
        channel: SOCK_SEQPACKET, one JSON object a packet.
        recorder: the flight recorder shared with the supervisor.
        skip: indices of quarantined GPUs.
        wanted: catalogue keys to read, None for all.
    """

    def __init__(
        self,
        vendor: Any,
        channel: socket.socket,
        recorder: FlightRecorder,
        skip: frozenset[int] = frozenset(),
        wanted: frozenset[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._vendor = vendor
        self._channel = channel
        self._recorder = recorder
        self._skip = skip
        self._wanted = wanted
        self._clock = clock
        self._workers: dict[int, GpuWorker] = {}
        self._stopping = threading.Event()
        self._tick = 0
        self._library = threading.Thread(target=self._run_library, name="library", daemon=True)

    def run(self) -> None:
        """Serve until told to stop; closes every vendor handle on the way out."""
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._library.start()
        while not self._stopping.is_set():
            packet = self._channel.recv(4096)
            if not packet:
                break
            self._serve(json.loads(packet))
        self._close()

    def _on_term(self, *_: object) -> None:
        self._stopping.set()
        self._channel.shutdown(socket.SHUT_RD)  # wakes `recv`

    def _serve(self, message: dict[str, Any]) -> None:
        match message.get("op"):
            case "tick":
                self._tick = message["n"]
                for worker in tuple(self._workers.values()):
                    if not worker.busy:
                        worker.inbox.put(self._tick)
            case "add":
                self._add(message["i"])
            case "stop":
                self._stopping.set()

    def send(self, message: dict[str, Any]) -> None:
        """Send one packet; a main process that is gone ends this one at its next receive."""
        try:
            self._channel.send(json.dumps(message, separators=(",", ":")).encode())
        except OSError:
            self._stopping.set()

    def fatal(self, error: VendorError) -> None:
        """Report an error of the whole library and end the process."""
        self.send({"k": "fatal", "slug": error.slug, "message": str(error), "remedy": error.remedy})
        self._stopping.set()
        try:
            self._channel.shutdown(socket.SHUT_RD)
        except OSError:
            return

    def guard(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call the vendor on the library's slot of the flight recorder."""
        self._recorder.enter(LIBRARY, name, self._clock())
        try:
            return function(*args)
        finally:
            self._recorder.leave(LIBRARY)

    def _run_library(self) -> None:
        """Initialise, start the GPUs' threads, watch. Any end but a stop is reported: a dead thread tells nobody."""
        vendor = self._vendor
        try:
            self.guard("nvmlInit", vendor.nvmlInit)
            hello = describe_library(vendor, self.guard)
            self.send(hello)
            for index in range(hello["count"]):
                if index not in self._skip:
                    self._add(index)
            self._watch(hello["count"])
        except vendor.NVMLError as error:
            self.fatal(translate(getattr(error, "value", 999), "NVML"))
        except Exception as error:  # noqa: BLE001  the supervisor starts a fresh child, with back-off
            self.fatal(Transient(f"{type(error).__name__} in the vendor child: {error}"))

    def _add(self, index: int) -> None:
        worker = GpuWorker(self._vendor, index, self._recorder, self.send, self.fatal, self._clock, self._wanted)
        self._workers[index] = worker
        worker.start()
        worker.inbox.put(self._tick)

    def _watch(self, count: int) -> None:
        """Wait for Xid events and watch the number of GPUs until stopped."""
        vendor = self._vendor
        events = EventWatch(vendor, self.send)
        turns = 0
        while not self._stopping.is_set():
            events.register({i: worker.handle for i, worker in self._workers.items() if worker.handle is not None})
            if not events.wait(EVENT_WAIT_MS):
                self._stopping.wait(EVENT_WAIT_MS / 1000)
            turns += 1
            if turns % COUNT_EVERY == 0:
                try:
                    present = self.guard("nvmlDeviceGetCount", vendor.nvmlDeviceGetCount)
                except vendor.NVMLError as error:
                    if isinstance(translate(getattr(error, "value", 999), ""), Transient) and error.value != 1:
                        continue  # asked again ten seconds later; the GPUs' own threads judge the GPUs
                    raise
                if present != count:
                    self.send({"k": "count", "count": present})
                    count = present
        events.close()

    def _close(self) -> None:
        self._stopping.set()
        for worker in self._workers.values():
            worker.inbox.put(None)
        closer = threading.Thread(target=self._shutdown, daemon=True)
        closer.start()
        closer.join(SHUTDOWN_GRACE)
        # Threads still inside the driver cannot be ended; leaving closes the files they hold once the kernel lets go.
        os._exit(0)

    def _shutdown(self) -> None:
        self._library.join(SHUTDOWN_GRACE)
        for worker in self._workers.values():
            worker.join(SHUTDOWN_GRACE)
        with contextlib.suppress(self._vendor.NVMLError):  # never initialised, or the driver is gone: nothing to close
            self._vendor.nvmlShutdown()
        if close := getattr(self._vendor, "close", None):
            close()  # a recorder writes what it still holds


class EventWatch:
    """NVML's event set: Xids as the driver reports them to clients. Quiet where events are not supported."""

    def __init__(self, vendor: Any, send: Send) -> None:
        self._vendor = vendor
        self._send = send
        self._set: Any = None
        self._registered: dict[int, Any] = {}
        self._usable = True

    def register(self, handles: dict[int, Any]) -> None:
        """Watch these GPUs; those already watched stay."""
        new = {index: handle for index, handle in handles.items() if index not in self._registered}
        if not new or not self._usable:
            return
        try:
            if self._set is None:
                self._set = self._vendor.nvmlEventSetCreate()
        except self._vendor.NVMLError:
            self._usable = False
            return
        for index, handle in new.items():
            self._registered[index] = handle
            try:
                self._vendor.nvmlDeviceRegisterEvents(handle, _XID_EVENT, self._set)
            except self._vendor.NVMLError:
                continue  # not supported on this GPU; the kernel log still tells

    def wait(self, timeout_ms: int) -> bool:
        """Wait for one event and send it; False if it returned without waiting."""
        if self._set is None:
            return False
        try:
            event = self._vendor.nvmlEventSetWait_v2(self._set, timeout_ms)
        except self._vendor.NVMLError as error:
            return getattr(error, "value", 0) == 10  # time-out
        if event.eventType & _XID_EVENT:
            self._send({"k": "xid", "i": self._index(event.device), "xid": int(event.eventData)})
        return True

    def _index(self, handle: Any) -> int:
        try:
            return int(self._vendor.nvmlDeviceGetIndex(handle))
        except (self._vendor.NVMLError, AttributeError):
            return next((index for index, known in self._registered.items() if known == handle), -1)

    def close(self) -> None:
        """Free the set."""
        if self._set is not None:
            try:
                self._vendor.nvmlEventSetFree(self._set)
            except self._vendor.NVMLError:
                return


def describe_library(vendor: Any, guard: Callable[..., Any]) -> dict[str, Any]:
    """Return the `hello` message: versions and the number of GPUs. May raise NVMLError."""
    driver = guard("nvmlSystemGetDriverVersion", vendor.nvmlSystemGetDriverVersion)
    cuda = vendor.nvmlSystemGetCudaDriverVersion_v2()
    return {
        "k": "hello",
        "driver": driver if isinstance(driver, str) else driver.decode(),
        "nvml": _version(vendor),
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
        "count": int(guard("nvmlDeviceGetCount", vendor.nvmlDeviceGetCount)),
    }


def _version(vendor: Any) -> str:
    version = vendor.nvmlSystemGetNVMLVersion()
    return version if isinstance(version, str) else str(version.decode())


def probe(vendor: Any, index: int, recorder: FlightRecorder, send: Send) -> None:
    """Open and read one GPU once, as a whole; sends `{"k": "probe", "ok": ...}`. For a short-lived child."""
    result: dict[str, Any] = {"k": "probe", "i": index, "ok": False}

    def note(message: dict[str, Any]) -> None:
        if message["k"] == "f" and message["c"] == "fast":
            result["ok"] = any(value is not None for value in message["v"])
        elif message["k"] == "down":
            result.update(slug=message["slug"], message=message["message"], remedy=message["remedy"])

    def failed(error: VendorError) -> None:
        result.update(slug=error.slug, message=str(error), remedy=error.remedy)

    try:
        recorder.enter(LIBRARY, "nvmlInit", time.monotonic())
        vendor.nvmlInit()
        recorder.leave(LIBRARY)
        GpuWorker(vendor, index, recorder, note, failed).turn(0)
    except vendor.NVMLError as error:
        failed(translate(getattr(error, "value", 999), "nvmlInit"))
    send(result)
