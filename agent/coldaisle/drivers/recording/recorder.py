"""Records a vendor's answers while passing them on."""

import contextlib
import fcntl
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coldaisle.domain.clock import Clock
from coldaisle.drivers.recording.format import ENCODE, VERSION, handle_key, plain, plain_args
from coldaisle.drivers.recording.privacy import Anonymiser

FLUSH_SECONDS = 2.0
KEPT = 9
"""Earlier recordings under the same name that are kept as NAME.1 to NAME.9."""
_UNRECORDED = frozenset({"nvmlErrorString"})
_ABOUT = {"nvmlSystemGetDriverVersion": "driver", "nvmlDeviceGetName": "product", "nvmlDeviceGetCount": "gpus"}


class RecordingNvml:
    """Passes every call on to `vendor` and writes what it answered. Thread-safe.

    UUIDs, serials and process ids are replaced before they reach the file. A file that cannot be written ends the
    recording, never a vendor call: `failure` then says why.

    Args:
        vendor: pynvml or what stands for it.
        path: the file; packed if it ends in `.gz`. One that exists is moved to `path`.1 (the next free number to 9),
            so that a restarted child does not destroy what its predecessor saw; while another recorder still writes
            `path`, this one takes the number itself.
        clock: monotonic time, and the day for the header.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, vendor: Any, path: str, clock: Clock) -> None:
        self._vendor = vendor
        self._writer = _Writer(path, clock)
        self._devices: dict[int, int] = {}
        self._samples: dict[int, int] = {}

    @property
    def path(self) -> str:
        """The file that is written."""
        return self._writer.path

    @property
    def failure(self) -> str:
        """Why recording has ended early; empty while it has not."""
        return self._writer.failure

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._vendor, name)
        if not name.startswith("nvml") or not callable(attribute) or name in _UNRECORDED:
            return attribute
        wrapped = self._wrap(name, attribute)
        self.__dict__[name] = wrapped
        return wrapped

    def mark(self, label: str) -> None:
        """Note that a part of the recording named `label` begins now."""
        self._writer.mark(label)

    def close(self) -> None:
        """Write what is left. Later calls still reach the vendor and are not recorded."""
        self._writer.close()

    def _wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        note = self._writer.note

        def call(*args: Any, **named: Any) -> Any:
            device, rest = self._split(name, args)
            shown = plain_args(name, (*rest, *named.values()))
            try:
                result = function(*args, **named)
            except self._vendor.NVMLError as error:
                note(name, device, shown, {"e": getattr(error, "value", 999)})
                raise
            self._remember(name, device, args, result)
            answer = plain(name, result)
            if name.startswith("nvmlEventSetWait") and isinstance(answer, dict):
                answer["device"] = self._devices.get(handle_key(result.device), -1)
            note(name, device, shown, answer)
            return result

        return call

    def _split(self, name: str, args: tuple[Any, ...]) -> tuple[int, tuple[Any, ...]]:
        """Return the device that a call concerns, -1 for none, and its other arguments."""
        if name == "nvmlGpmMetricsGet":
            return self._samples.get(handle_key(args[0].sample2), -1), args
        if not args or isinstance(args[0], int | float):
            return -1, args
        device = self._devices.get(handle_key(args[0]), -1)
        return (device, args[1:]) if device >= 0 else (-1, args)

    def _remember(self, name: str, device: int, args: tuple[Any, ...], result: Any) -> None:
        if name.startswith("nvmlDeviceGetHandleByIndex"):
            self._devices[handle_key(result)] = int(args[0])
        elif name == "nvmlGpmSampleGet":
            self._samples[handle_key(args[1])] = device


class _Writer:
    """The file, written under one lock; nothing but `OSError` at construction ever leaves it."""

    def __init__(self, path: str, clock: Clock) -> None:
        self.failure = ""
        self._clock = clock
        self._start = clock.monotonic()
        self._flushed_at = self._start
        self._lock = threading.Lock()
        self.path = _place(path)
        self._file = Path(self.path).open("wb")  # noqa: SIM115  open as long as the process lives
        with contextlib.suppress(OSError):  # a file system without locks: nothing to tell other recorders by
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._pack = zlib.compressobj(6, zlib.DEFLATED, 31) if path.endswith(".gz") else None
        self._private = Anonymiser()
        self._functions: dict[str, int] = {}
        self._last: dict[tuple[int, int, str], tuple[str, Any]] = {}
        self._about: dict[str, Any] = {}
        # The monotonic start lets a timeline be merged to the millisecond; of real time only the day is told.
        day = time.strftime("%Y-%m-%d", time.gmtime(clock.wall()))
        self._write({"coldaisle_recording": VERSION, "day": day, "monotonic": round(self._start, 3)})
        self._flush()

    def note(self, name: str, device: int, args: list[Any], answer: Any) -> None:
        """Append one call."""
        with self._lock:
            if self._file.closed:
                return
            now = self._clock.monotonic()
            number = self._functions.get(name)
            if number is None:
                number = self._functions[name] = len(self._functions)
                self._write(["f", number, name])
            shown = ENCODE(self._private.arguments(name, args))
            key = (number, device, shown)
            answer = self._private.answer(name, device, answer)
            text = ENCODE(answer)
            before = self._last.get(key)
            self._last[key] = (text, answer)
            if before is not None:
                text = '"="' if before[0] == text else _shortened(name, before[1], answer) or text
            self._put(f"[{round((now - self._start) * 1000)},{number},{device},{shown},{text}]")
            if (fact := _ABOUT.get(name)) and not isinstance(answer, dict) and self._about.get(fact) is None:
                self._about[fact] = answer
                self._write({"about": {fact: answer}})
            if now - self._flushed_at > FLUSH_SECONDS:
                self._flushed_at = now
                self._flush()

    def mark(self, label: str) -> None:
        with self._lock:
            if self._file.closed:  # a finished packer takes nothing more
                return
            self._write({"label": label, "t": round(self._clock.monotonic() - self._start, 3)})

    def close(self) -> None:
        with self._lock:
            if self._pack is not None and not self._file.closed:
                self._attempt(lambda: self._file.write(self._pack.flush()) if self._pack else None)
            with contextlib.suppress(OSError):
                self._file.close()

    def _write(self, value: Any) -> None:
        self._put(ENCODE(value))

    def _put(self, line: str) -> None:
        data = line.encode() + b"\n"
        packed = self._pack.compress(data) if self._pack is not None else data
        self._attempt(lambda: self._file.write(packed))

    def _flush(self) -> None:
        if self._pack is not None:
            packed = self._pack.flush(zlib.Z_SYNC_FLUSH)
            self._attempt(lambda: self._file.write(packed))
        self._attempt(self._file.flush)

    def _attempt(self, act: Callable[[], object]) -> None:
        """Do what may meet a full disk; the first failure ends the recording."""
        if self._file.closed:
            return
        try:
            act()
        except OSError as error:
            self.failure = str(error)
            with contextlib.suppress(OSError):  # closing writes what is buffered, which fails again
                self._file.close()


def _shortened(name: str, before: Any, answer: Any) -> str:
    """Return field values with only [timestamp, latency] where the value is as before; empty for anything else."""
    if name != "nvmlDeviceGetFieldValues" or not isinstance(before, list) or not isinstance(answer, list):
        return ""
    pairs = zip(before, answer, strict=True)
    return ENCODE([new[5:] if old[:5] == new[:5] else new for old, new in pairs])


def _place(path: str) -> str:
    """Return where to write: `path`, after moving what stands there aside, or beside a recorder that is at work."""
    target = Path(path)
    if not target.is_file() or not target.stat().st_size:
        return path
    names = [f"{path}.{number}" for number in range(1, KEPT + 1)]
    aside = next((name for name in names if not Path(name).exists()), names[-1])
    with target.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return aside
    with contextlib.suppress(OSError):  # a directory that may not be changed: the file is replaced
        target.replace(aside)
    return path
