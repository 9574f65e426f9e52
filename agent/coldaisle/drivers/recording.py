"""Raw vendor answers to a file and back: recorded on a real machine, replayed anywhere, at the pynvml boundary.

One JSON array a line. `["f", number, name]` names a function; `[ms, function, device, args, result]` is one call, with
`{"e": code}` for an NVML error and `"="` for the same answer as before. docs/recordings.md has the grammar.
"""

import ctypes
import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml

from coldaisle.domain.clock import Clock
from coldaisle.domain.errors import ColdaisleError

VERSION = 1
_FLUSH_SECONDS = 2.0
_UNION = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_PRIVATE = {
    "nvmlDeviceGetSerial": "0000000000000",
    "nvmlDeviceGetBoardId": 0,
    "nvmlDeviceGetComputeRunningProcesses": None,
}
_UNRECORDED = frozenset({"nvmlErrorString", "nvmlEventSetWait_v2"})


class RecordingNvml:
    """Passes every call on to `vendor` and writes what it answered. Thread-safe.

    UUIDs, serials and process ids are replaced before they reach the file.

    Args:
        vendor: pynvml or what stands for it.
        path: the file; packed if it ends in `.gz`. Replaced if it exists.
        clock: monotonic time.
    """

    def __init__(self, vendor: Any, path: str, clock: Clock) -> None:
        self._vendor = vendor
        self._clock = clock
        self._start = clock.monotonic()
        self._lock = threading.Lock()
        self._file = Path(path).open("wb")  # noqa: SIM115  open as long as the process lives
        self._pack = zlib.compressobj(6, zlib.DEFLATED, 31) if path.endswith(".gz") else None
        self._flushed_at = self._start
        self._functions: dict[str, int] = {}
        self._last: dict[tuple[int, int, str], str] = {}
        self._devices: dict[int, int] = {}
        self._samples: dict[int, int] = {}
        self._write(json.dumps({"coldaisle_recording": VERSION}))

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._vendor, name)
        if not name.startswith("nvml") or not callable(attribute) or name in _UNRECORDED:
            return attribute
        wrapped = self._wrap(name, attribute)
        self.__dict__[name] = wrapped
        return wrapped

    def _wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            device, rest = self._split(name, args)
            try:
                result = function(*args)
            except self._vendor.NVMLError as error:
                self._note(name, device, rest, {"e": getattr(error, "value", 999)})
                raise
            if name == "nvmlDeviceGetHandleByIndex":
                self._devices[_handle_key(result)] = int(args[0])
            if name == "nvmlGpmSampleGet":
                self._samples[_handle_key(args[1])] = device
            self._note(name, device, rest, self._anonymous(name, device, result))
            return result

        return call

    def _split(self, name: str, args: tuple[Any, ...]) -> tuple[int, tuple[Any, ...]]:
        """Return the device that a call concerns, -1 for none, and its other arguments."""
        if name == "nvmlGpmMetricsGet":
            return self._samples.get(_handle_key(args[0].sample2), -1), args
        device = self._devices.get(_handle_key(args[0]), -1) if args and not _is_plain(args[0]) else -1
        return (device, args[1:]) if device >= 0 else (-1, args)

    def _anonymous(self, name: str, device: int, result: Any) -> Any:
        if name == "nvmlDeviceGetUUID":
            return f"GPU-00000000-0000-0000-0000-{device:012d}"
        if name == "nvmlDeviceGetComputeRunningProcesses":
            return [{"pid": number + 1} for number, _ in enumerate(result)]
        return _PRIVATE.get(name) if name in _PRIVATE else _plain(name, result)

    def _note(self, name: str, device: int, args: tuple[Any, ...], result: Any) -> None:
        shown = json.dumps(_plain_args(name, args), separators=(",", ":"))
        text = json.dumps(result, separators=(",", ":"))
        with self._lock:
            now = self._clock.monotonic()
            number = self._functions.get(name)
            if number is None:
                number = self._functions[name] = len(self._functions)
                self._write(json.dumps(["f", number, name]))
            key = (number, device, shown)
            same = self._last.get(key) == text
            self._last[key] = text
            answer = '"="' if same else text
            self._write(f"[{round((now - self._start) * 1000)},{number},{device},{shown},{answer}]")
            if now - self._flushed_at > _FLUSH_SECONDS and not self._file.closed:
                self._flushed_at = now
                if self._pack is not None:
                    self._file.write(self._pack.flush(zlib.Z_SYNC_FLUSH))
                self._file.flush()

    def close(self) -> None:
        """Write what is left. Later calls still reach the vendor and are not recorded."""
        with self._lock:
            if self._pack is not None:
                self._file.write(self._pack.flush())
            self._file.close()

    def _write(self, line: str) -> None:
        if self._file.closed:
            return
        data = line.encode() + b"\n"
        self._file.write(self._pack.compress(data) if self._pack is not None else data)


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float)


def _handle_key(handle: Any) -> int:
    if isinstance(handle, ctypes._Pointer):  # noqa: SLF001  ctypes has no public name for "any pointer"
        return ctypes.cast(handle, ctypes.c_void_p).value or 0
    return hash(handle) if handle.__hash__ else id(handle)


def _plain_args(name: str, args: tuple[Any, ...]) -> list[Any]:
    if name == "nvmlGpmMetricsGet":
        request = args[0]
        return [[request.metrics[place].metricId for place in range(request.numMetrics)]]
    return [arg if isinstance(arg, int | str | list | tuple) else None for arg in args]


def _plain(name: str, value: Any) -> Any:
    """Return a vendor's answer as JSON: structs by field name, field values as lists."""
    if name == "nvmlDeviceGetFieldValues":
        return [
            [v.fieldId, v.scopeId, v.nvmlReturn, v.valueType, _plain("", getattr(v.value, _UNION[v.valueType]))]
            for v in value
        ]
    if name == "nvmlGpmMetricsGet":
        return [[m.metricId, m.nvmlReturn, _plain("", m.value)] for m in value.metrics[: value.numMetrics]]
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)  # noqa: PLR0124  NaN test
    if isinstance(value, list | tuple):
        return [_plain("", item) for item in value]
    if isinstance(value, ctypes.Structure):
        return {field[0]: _plain("", getattr(value, field[0])) for field in value._fields_}
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return value if isinstance(value, bool | int | str) else None


class _Answer:
    """A struct rebuilt from its recorded fields."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update({name: _rebuilt(value) for name, value in fields.items()})


def _rebuilt(value: Any) -> Any:
    if isinstance(value, dict):
        return _Answer(value)
    if isinstance(value, list):
        return [_rebuilt(item) for item in value]
    return value


class ReplayNvml:
    """Answers as the recorded machine did, each call by the latest answer at or before the replay's time.

    Before a call's first recorded answer that first one is given; after the end the last, or the recording begins
    again with `loop`. What was never asked is "not supported".

    Args:
        path: a recording.
        clock: monotonic time; the replay starts at construction.
        speed: how much faster than recorded.
        loop: start again at the end.

    Raises:
        ColdaisleError: the file is no recording, or a line of it is broken.
    """

    def __init__(self, path: str, clock: Clock, *, speed: float = 1.0, loop: bool = False) -> None:
        self._clock = clock
        self._start = clock.monotonic()
        self._speed = speed
        self._loop = loop
        self._answers: dict[tuple[str, int, str], tuple[list[int], list[Any]]] = {}
        self._end = 0
        self._buffers: list[Any] = []
        self._samples: dict[int, _Device] = {}
        self._load(path)

    def _load(self, path: str) -> None:
        names: dict[int, str] = {}
        last: dict[tuple[str, int, str], Any] = {}
        for number, line in enumerate(lines(path), 1):
            try:
                entry = json.loads(line)
                if isinstance(entry, dict):
                    continue
                if entry[0] == "f":
                    names[entry[1]] = entry[2]
                    continue
                at, function, device, args, result = entry
                key = (names[function], device, json.dumps(args))
                result = last[key] if result == "=" else result
            except (ValueError, TypeError, LookupError):
                raise ColdaisleError(
                    f"{path}:{number}: is no line of a recording", remedy="record again with `coldaisle record`"
                ) from None
            last[key] = result
            times, answers = self._answers.setdefault(key, ([], []))
            times.append(at)
            answers.append(result)
            self._end = max(self._end, at)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml") or name.startswith("nvmlMemory") or not callable(getattr(pynvml, name, None)):
            return getattr(pynvml, name)
        return lambda *args: self._answer(name, args)

    def _answer(self, name: str, args: tuple[Any, ...]) -> Any:
        device, rest = (args[0], args[1:]) if args and isinstance(args[0], _Device) else (-1, args)
        index = device.index if isinstance(device, _Device) else -1
        return _rebuilt(self._find(name, index, json.dumps(_plain_args(name, rest))))

    def _find(self, name: str, device: int, args: str) -> Any:
        found = self._answers.get((name, device, args))
        if found is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        result = found[1][self._place(found[0])]
        if isinstance(result, dict) and "e" in result:
            raise pynvml.NVMLError(result["e"])
        return result

    def _place(self, times: list[int]) -> int:
        at = (self._clock.monotonic() - self._start) * 1000 * self._speed
        if self._loop and self._end:
            at %= self._end + 1000
        low, high = 0, len(times)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if times[middle] <= at else (low, middle)
        return max(0, low - 1)

    def nvmlInit(self) -> None:  # noqa: N802  the vendor's name
        """Nothing to initialise."""

    def nvmlShutdown(self) -> None:  # noqa: N802
        """Nothing to close."""

    def nvmlDeviceGetHandleByIndex(self, index: int) -> "_Device":  # noqa: N802
        """Return the recorded device's handle, or raise what was recorded."""
        self._answer("nvmlDeviceGetHandleByIndex", (index,))
        return _Device(index)

    def nvmlDeviceGetFieldValues(self, handle: "_Device", ids: list[Any]) -> Any:  # noqa: N802
        """Return the recorded values of exactly this batch."""
        recorded = self._answer("nvmlDeviceGetFieldValues", (handle, [list(item) for item in ids]))
        values = (pynvml.c_nvmlFieldValue_t * len(recorded))()
        for slot, (field, scope, code, kind, value) in zip(values, recorded, strict=True):
            slot.fieldId, slot.scopeId, slot.nvmlReturn, slot.valueType = field, scope, code, kind
            setattr(slot.value, _UNION[kind], float(value) if kind == 0 else value)
        return values

    def nvmlGpmSampleAlloc(self) -> Any:  # noqa: N802
        """Return an empty sample: an address of its own, as the vendor's are."""
        buffer = ctypes.create_string_buffer(8)
        self._buffers.append(buffer)
        return ctypes.cast(buffer, pynvml.c_nvmlGpmSample_t)

    def nvmlGpmSampleFree(self, _sample: Any) -> None:  # noqa: N802
        """Nothing to free: buffers live as long as the replay."""

    def nvmlGpmSampleGet(self, handle: "_Device", sample: Any) -> None:  # noqa: N802
        """Remember whose sample it is."""
        self._samples[_handle_key(sample)] = handle

    def nvmlGpmMetricsGet(self, request: Any) -> Any:  # noqa: N802
        """Fill in the recorded metrics of the device that the samples were taken from."""
        handle = self._samples[_handle_key(request.sample2)]
        asked = [[request.metrics[place].metricId for place in range(request.numMetrics)]]
        for place, (_, code, value) in enumerate(self._find("nvmlGpmMetricsGet", handle.index, json.dumps(asked))):
            request.metrics[place].nvmlReturn, request.metrics[place].value = code, float(value)
        return request

    def nvmlEventSetWait_v2(self, _events: Any, timeout_ms: int) -> None:  # noqa: N802
        """No event is replayed: wait as the vendor would and time out."""
        time.sleep(timeout_ms / 1000)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)


class _Device:
    """Handle of a recorded device."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


def lines(path: str) -> Iterator[str]:
    """Yield a recording's lines; the torn end that a killed recorder leaves is left out.

    Raises ColdaisleError if the file is no recording.
    """
    data = Path(path).read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = zlib.decompressobj(31).decompress(data)
        except zlib.error as error:
            raise ColdaisleError(f"{path}: is damaged: {error}", remedy="record again") from None
    whole = data[: data.rfind(b"\n") + 1].decode("utf-8", "replace").splitlines()
    if not whole or "coldaisle_recording" not in whole[0]:
        raise ColdaisleError(f"{path}: is no recording", remedy="make one with `coldaisle record`")
    yield from whole
