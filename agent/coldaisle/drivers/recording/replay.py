"""Answers as a recorded machine did."""

import ctypes
import json
import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import pynvml

from coldaisle.domain.clock import Clock
from coldaisle.drivers.recording.format import UNION, broken, entries, handle_key, plain_args

_LOOP_PAUSE_MS = 1000
"""Between a loop's last answer and its first: what one tick of the recorder would have taken."""


class _Device:
    """Handle of a recorded device."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Device) and other.index == self.index

    def __hash__(self) -> int:
        return hash(self.index)


class _Track:
    """One call's answers over time: `times` in milliseconds, ascending."""

    __slots__ = ("answers", "times")

    def __init__(self) -> None:
        self.times: list[int] = []
        self.answers: list[Any] = []

    def add(self, at: int, answer: Any) -> None:
        self.times.append(at)
        self.answers.append(answer)

    def at(self, ms: float) -> Any:
        return self.answers[max(0, bisect_right(self.times, ms) - 1)]


class _Answer:
    """A struct rebuilt from its recorded fields."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update({name: _rebuilt(value) for name, value in fields.items()})


def _rebuilt(value: Any) -> Any:
    if isinstance(value, dict):
        return _Answer(value)
    if isinstance(value, list):
        return [_rebuilt(item) for item in value]
    # The recorder's words for what JSON cannot say; as text they would reach the reader's arithmetic.
    return float(value) if value in ("nan", "inf", "-inf") else value


class ReplayNvml:
    """Answers as the recorded machine did, each call by the latest answer at or before the replay's time.

    Before a call's first recorded answer that first one is given; after the end the last, or the recording begins
    again with `loop`. Field ids and GPM metrics that were recorded in other batches than the one asked for are
    answered one by one. What was never asked is "not supported".

    Args:
        path: a recording.
        clock: monotonic time; the replay starts at construction.
        speed: how much faster than recorded.
        loop: start again at the end.
        sleep: waits a number of seconds; a parameter for tests.

    Raises:
        ColdaisleError: the file is no recording, or a line of it is broken.
    """

    def __init__(
        self,
        path: str,
        clock: Clock,
        speed: float = 1.0,
        loop: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._start = clock.monotonic()
        self._speed = speed
        self._loop = loop
        self._sleep = sleep
        self._tracks: dict[tuple[str, int, str], _Track] = {}
        self._events = _Track()
        self._delivered = 0
        self._single: dict[str, dict[tuple[int, int, int], _Track]] = {}
        self._end = 0
        self._buffers: list[Any] = []
        self._samples: dict[int, _Device] = {}
        self._load(path)

    def _load(self, path: str) -> None:
        names: dict[int, str] = {}
        last: dict[tuple[str, int, str], Any] = {}
        for number, entry in entries(path):
            if isinstance(entry, dict):
                continue
            try:
                if entry[0] == "f":
                    names[entry[1]] = entry[2]
                    continue
                at, function, device, args, result = entry
                key = (names[function], device, json.dumps(args))
                last[key] = result = _full(names[function], last, key, result)
                self._end = max(self._end, at)
            except (ValueError, TypeError, LookupError):
                raise broken(path, number) from None
            self._tracks.setdefault(key, _Track()).add(at, result)
            if key[0].startswith("nvmlEventSetWait") and not _is_error(result):
                self._events.add(at, result)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(pynvml, name)
        # nvmlMemory_v2 and its like are numbers; exceptions and structs are classes of other names.
        if not name.startswith("nvml") or not callable(attribute) or isinstance(attribute, type):
            return attribute

        def call(*args: Any, **named: Any) -> Any:
            return self._answer(name, (*args, *named.values()))

        self.__dict__[name] = call
        return call

    def _answer(self, name: str, args: tuple[Any, ...]) -> Any:
        device, rest = (args[0].index, args[1:]) if args and isinstance(args[0], _Device) else (-1, args)
        return _rebuilt(self._find(name, device, plain_args(name, rest)))

    def _find(self, name: str, device: int, args: list[Any]) -> Any:
        track = self._tracks.get((name, device, json.dumps(args)))
        if track is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return _raised(track.at(self._now()))

    def _elapsed(self) -> float:
        return (self._clock.monotonic() - self._start) * 1000 * self._speed

    def _now(self) -> float:
        """Return the place in the recording, in milliseconds."""
        return self._elapsed() % (self._end + _LOOP_PAUSE_MS) if self._loop else self._elapsed()

    def _batch(self, name: str, device: int, asked: list[list[int]]) -> list[Any]:
        """Return recorded elements of a batch call: of this very batch, else each as it came in any batch."""
        args: list[Any] = [asked] if name == "nvmlDeviceGetFieldValues" else [[metric for metric, _ in asked]]
        if (name, device, json.dumps(args)) in self._tracks:
            found: list[Any] = self._find(name, device, args)
            return found
        tracks = self._single.get(name) or self._single.setdefault(name, self._split(name))
        now = self._now()
        result = []
        for element, scope in asked:
            track = tracks.get((device, element, scope))
            # An error of a whole batch is an error of each of its elements.
            result.append(_raised(track.at(now)) if track else None)
        return result

    def _split(self, name: str) -> dict[tuple[int, int, int], _Track]:
        """Return a batch call's elements one by one: (device, id, scope) -> answers."""
        found: dict[tuple[int, int, int], list[tuple[int, Any]]] = {}
        for (function, device, args), track in self._tracks.items():
            if function != name:
                continue
            ids = [pair if isinstance(pair, list) else [pair, 0] for pair in json.loads(args)[0]]
            for at, answer in zip(track.times, track.answers, strict=True):
                for place, (element, scope) in enumerate(ids):
                    single = answer if _is_error(answer) else answer[place]
                    found.setdefault((device, element, scope), []).append((at, single))
        result: dict[tuple[int, int, int], _Track] = {}
        for key, pairs in found.items():
            result[key] = track = _Track()
            for at, single in sorted(pairs, key=lambda pair: pair[0]):
                track.add(at, single)
        return result

    def nvmlInit(self) -> None:  # noqa: N802  the vendor's name
        """Raise what was recorded, if anything."""
        if ("nvmlInit", -1, "[]") in self._tracks:
            self._find("nvmlInit", -1, [])

    def nvmlShutdown(self) -> None:  # noqa: N802
        """Nothing to close."""

    def nvmlErrorString(self, code: int) -> str:  # noqa: N802
        """Return the binding's own words; the library is never asked."""
        return str(pynvml.NVMLError(code))

    def nvmlDeviceGetHandleByIndex(self, index: int) -> _Device:  # noqa: N802
        """Return the recorded device's handle, or raise what was recorded."""
        self._answer("nvmlDeviceGetHandleByIndex", (index,))
        return _Device(index)

    def nvmlDeviceGetHandleByUUID(self, uuid: str | bytes) -> _Device:  # noqa: N802
        """Return the handle of the device that answered with this (anonymised) UUID."""
        wanted = uuid.decode() if isinstance(uuid, bytes) else uuid
        for (name, device, _), track in self._tracks.items():
            if name == "nvmlDeviceGetUUID" and wanted in track.answers:
                return self.nvmlDeviceGetHandleByIndex(device)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetIndex(self, handle: _Device) -> int:  # noqa: N802
        """Return the recorded index."""
        return handle.index

    def nvmlDeviceGetFieldValues(self, handle: _Device, ids: list[Any]) -> Any:  # noqa: N802
        """Return the recorded values; an id that was never asked is "not supported"."""
        asked = plain_args("nvmlDeviceGetFieldValues", (ids,))[0]
        recorded = self._batch("nvmlDeviceGetFieldValues", handle.index, asked)
        values = (pynvml.c_nvmlFieldValue_t * len(recorded))()
        for slot, (element, scope), item in zip(values, asked, recorded, strict=True):
            slot.fieldId, slot.scopeId = element, scope
            slot.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
            if item is not None:
                _fill(slot, item)
        return values

    def nvmlGpmSampleAlloc(self) -> Any:  # noqa: N802
        """Return an empty sample: an address of its own, as the vendor's are."""
        buffer = ctypes.create_string_buffer(8)
        self._buffers.append(buffer)
        return ctypes.cast(buffer, pynvml.c_nvmlGpmSample_t)

    def nvmlGpmSampleFree(self, _sample: Any) -> None:  # noqa: N802
        """Nothing to free: buffers live as long as the replay."""

    def nvmlGpmSampleGet(self, handle: _Device, sample: Any) -> None:  # noqa: N802
        """Remember whose sample it is, or raise what was recorded."""
        self._find("nvmlGpmSampleGet", handle.index, [None])
        self._samples[handle_key(sample)] = handle

    def nvmlGpmMetricsGet(self, request: Any) -> Any:  # noqa: N802
        """Fill in the recorded metrics of the device that the samples were taken from."""
        handle = self._samples.get(handle_key(request.sample2))
        if handle is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        asked = [[request.metrics[place].metricId, 0] for place in range(request.numMetrics)]
        for place, item in enumerate(self._batch("nvmlGpmMetricsGet", handle.index, asked)):
            code, value = item[1:] if item is not None else (pynvml.NVML_ERROR_NOT_SUPPORTED, 0.0)
            request.metrics[place].nvmlReturn, request.metrics[place].value = code, float(value)
        return request

    def nvmlEventSetWait_v2(self, _events: Any, timeout_ms: int) -> Any:  # noqa: N802
        """Return the next recorded event once its time has come, each one once; else wait and time out."""
        for last_look in (False, True):
            due = self._due()
            if due is not None and due <= self._elapsed():
                fields = self._events.answers[self._delivered % len(self._events.answers)]
                self._delivered += 1
                event = _rebuilt(fields)
                event.device = _Device(fields["device"])
                return event
            if not last_look:
                rest = timeout_ms if due is None else min(timeout_ms, (due - self._elapsed()) / self._speed)
                self._sleep(rest / 1000)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)

    def _due(self) -> float | None:
        """Return when the next event comes, in milliseconds of replay; None: no more."""
        count = len(self._events.times)
        if not count or (self._delivered >= count and not self._loop):
            return None
        turns, place = divmod(self._delivered, count)
        return turns * (self._end + _LOOP_PAUSE_MS) + self._events.times[place]


def _is_error(answer: Any) -> bool:
    return isinstance(answer, dict) and "e" in answer


def _raised(answer: Any) -> Any:
    if _is_error(answer):
        raise pynvml.NVMLError(answer["e"])
    return answer


def _full(name: str, last: dict[tuple[str, int, str], Any], key: tuple[str, int, str], result: Any) -> Any:
    """Return an answer in full: "=" and shortened field values stand for what this call answered before."""
    if result == "=":
        return last[key]
    if name == "nvmlDeviceGetFieldValues" and isinstance(result, list):
        return [last[key][place][:5] + item if len(item) == 2 else item for place, item in enumerate(result)]
    return result


def _fill(slot: Any, item: list[Any]) -> None:
    slot.nvmlReturn, slot.valueType, value = item[2:5]
    if len(item) == 7:  # format 1 had no times
        slot.timestamp, slot.latencyUsec = item[5:]
    if value is not None and slot.valueType < len(UNION):
        setattr(slot.value, UNION[slot.valueType], float(value) if slot.valueType == 0 else value)
