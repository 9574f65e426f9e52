"""What a recording must not tell: whose machine it is and what ran on it."""

import re
from typing import Any

_UUID = "GPU-00000000-0000-0000-0000-"
_PRIVATE_CALL = re.compile(r"Serial|BoardId|Pdi|ProcessName|AccountingPids|HostId|Hostname|UnitInfo|PlatformInfo")
_PRIVATE_FIELD = re.compile(r"serial|uuid|guid|chassis|hostid|pdi|name$", re.IGNORECASE)

_STAMPS = frozenset({"referenceTime", "timeStamp"})


class Anonymiser:
    """Replaces identities by numbers of its own; the same one always by the same. Used under the recorder's lock."""

    def __init__(self) -> None:
        self._uuids: dict[str, str] = {}
        self._pids: dict[int, int] = {}
        self._epoch = 0

    def answer(self, name: str, device: int, result: Any) -> Any:
        """Return `result` of vendor function `name` without what identifies the machine, its owner or its jobs."""
        if name == "nvmlDeviceGetUUID" and isinstance(result, str):
            return self._uuids.setdefault(result, f"{_UUID}{device if device >= 0 else 0xFFFFFFFF:012d}")
        if name == "nvmlDeviceGetFieldValues" and isinstance(result, list):
            for item in result:
                item[5] = self._since(item[5])
            return result
        if _PRIVATE_CALL.search(name):
            return _emptied(result)
        return self._masked(result)

    def arguments(self, name: str, args: list[Any]) -> list[Any]:
        """Return a call's arguments likewise: texts may be identities, and a process id can be one."""
        if "PciBusId" in name:
            return args
        if "Process" in name or "AccountingStats" in name:
            return [self._pid(arg) if isinstance(arg, int) else arg for arg in args]
        return [self._uuids.get(arg, "*") if isinstance(arg, str) else arg for arg in args]

    def _pid(self, pid: int) -> int:
        return self._pids.setdefault(pid, len(self._pids) + 1)

    def _since(self, stamp: int) -> int:
        """Return the driver's wall time in microseconds as time since the first one seen; 0 (none) stays 0."""
        if stamp and not self._epoch:
            self._epoch = stamp - 1
        return stamp - self._epoch if stamp else 0

    def _masked(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._field(key, item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._masked(item) for item in value] if value and isinstance(value[0], dict | list) else value
        return value

    def _field(self, key: str, value: Any) -> Any:
        if key == "pid" and isinstance(value, int):
            return self._pid(value)
        if key in _STAMPS and isinstance(value, int):
            return self._since(value)
        return _emptied(value) if _PRIVATE_FIELD.search(key) else self._masked(value)


def _emptied(value: Any) -> Any:
    """Return a value of the same shape that says nothing: digits and letters become 0."""
    if isinstance(value, str):
        return re.sub(r"[0-9A-Za-z]", "0", value)
    if isinstance(value, dict):
        return {key: _emptied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_emptied(item) for item in value]
    return 0 if isinstance(value, int) and not isinstance(value, bool) else value
