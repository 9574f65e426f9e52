"""The recording's file: how it is read, and how vendor answers become JSON."""

import ctypes
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coldaisle.domain.errors import ColdaisleError

VERSION = 2
"""Written. Version 1, without field timestamps, is still read."""
UNION = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""nvmlValueType_t -> member of the value union."""
ENCODE = json.JSONEncoder(separators=(",", ":")).encode
"""json.dumps builds an encoder at each call with separators; one kept is three times as fast."""


def lines(path: str) -> Iterator[str]:
    """Yield a recording's lines; the torn end that a killed recorder leaves is left out.

    Raises ColdaisleError if the file is no recording or of a later format.
    """
    data = Path(path).read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = zlib.decompressobj(31).decompress(data)
        except zlib.error as error:
            raise ColdaisleError(f"{path}: is damaged: {error}", remedy="record again") from None
    whole = data[: data.rfind(b"\n") + 1].decode("utf-8", "replace").split("\n")[:-1]
    try:
        version = json.loads(whole[0])["coldaisle_recording"]
    except (ValueError, TypeError, LookupError):
        raise ColdaisleError(f"{path}: is no recording", remedy="make one with `coldaisle record`") from None
    if version not in range(1, VERSION + 1):
        raise ColdaisleError(f"{path}: format {version} is not known here", remedy="use a newer coldaisle")
    yield from whole


def broken(path: str, number: int) -> ColdaisleError:
    """Return the error for a line that means nothing."""
    return ColdaisleError(f"{path}:{number}: is no line of a recording", remedy="record again with `coldaisle record`")


def entries(path: str) -> Iterator[tuple[int, Any]]:
    """Yield (line number, parsed line). Raises ColdaisleError for a line that is no object and no list."""
    for number, line in enumerate(lines(path), 1):
        try:
            entry = json.loads(line)
        except ValueError:
            raise broken(path, number) from None
        if not isinstance(entry, dict | list) or not entry:
            raise broken(path, number)
        yield number, entry


def summary(path: str) -> list[tuple[str, float, int]]:
    """Return (label, seconds, calls) of each part of a recording; the label of what comes before any is empty."""
    parts: list[tuple[str, float]] = [("", 0.0)]
    calls = [0]
    end = 0.0
    for number, entry in entries(path):
        try:
            if isinstance(entry, dict):
                if "label" in entry:
                    parts.append((str(entry["label"]), float(entry["t"])))
                    calls.append(0)
            elif entry[0] != "f":
                calls[-1] += 1
                end = max(end, entry[0] / 1000)
        except (TypeError, ValueError, LookupError):
            raise broken(path, number) from None
    ends = [start for _, start in parts[1:]] + [max(end, parts[-1][1])]
    rows = [(label, until - start, count) for (label, start), until, count in zip(parts, ends, calls, strict=True)]
    return rows if rows[0][2] or len(rows) == 1 else rows[1:]


def plain_args(name: str, args: tuple[Any, ...]) -> list[Any]:
    """Return a call's arguments as JSON; handles, samples and sets are null: their number differs from run to run."""
    if name == "nvmlGpmMetricsGet":
        request = args[0]
        return [[request.metrics[place].metricId for place in range(request.numMetrics)]]
    if name == "nvmlDeviceGetFieldValues":
        return [[list(item) if isinstance(item, list | tuple) else [item, 0] for item in args[-1]]]
    return [arg if isinstance(arg, int | str | list | tuple) else None for arg in args]


def plain(name: str, value: Any) -> Any:
    """Return a vendor's answer as JSON: structs by field name, field values and GPM metrics as lists."""
    if name == "nvmlDeviceGetFieldValues":
        return [_field_value(item) for item in value]
    if name == "nvmlGpmMetricsGet":
        return [[m.metricId, m.nvmlReturn, _plain(m.value)] for m in value.metrics[: value.numMetrics]]
    return _plain(value)


def _field_value(item: Any) -> list[Any]:
    kind = item.valueType
    # A failed field may carry any type number: its value means nothing then.
    value = _plain(getattr(item.value, UNION[kind])) if kind < len(UNION) else None
    return [item.fieldId, item.scopeId, item.nvmlReturn, kind, value, item.timestamp, item.latencyUsec]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has no NaN and no infinity
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list | tuple | ctypes.Array):
        return [_plain(item) for item in value]
    return _plain_struct(value)


def _plain_struct(value: Any) -> Any:
    if isinstance(value, ctypes.Structure | ctypes.Union):
        return {field[0]: _plain(getattr(value, field[0])) for field in value._fields_}
    if isinstance(value, ctypes._SimpleCData):  # noqa: SLF001  ctypes has no public name for "any number"
        return _plain(value.value)
    if isinstance(value, ctypes._Pointer):  # noqa: SLF001  see above; a handle: nothing outside this run
        return None
    # pynvml's "friendly objects", which stand for structs.
    return {name: _plain(item) for name, item in getattr(value, "__dict__", {}).items()} or None


def handle_key(handle: Any) -> int:
    """Return what tells one handle from another: the address of a pointer, the hash of anything else."""
    if isinstance(handle, ctypes._Pointer):  # noqa: SLF001  ctypes has no public name for "any pointer"
        return ctypes.cast(handle, ctypes.c_void_p).value or 0
    return hash(handle) if handle.__hash__ else id(handle)
