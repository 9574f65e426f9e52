"""Reads one GPU: what the catalogue lists, by the best call that this GPU and driver support."""

import math
from collections.abc import Callable
from typing import Any

from coldaisle.drivers.nvml.errors import slug_of, translate
from coldaisle.drivers.nvml.gpm import Gpm as GpmSampler
from coldaisle.metrics.gpu_fields import BY_CADENCE, Call, FieldId, Gpm, GpuField, Query

# Return codes after which a GPU's whole collection is void, whatever was asked.
FATAL_CODES = frozenset({1, 9, 15, 16, 18})
# "Not supported here": the next query of the catalogue is tried, for good. Anything else may pass.
_UNSUPPORTED_CODES = frozenset({2, 3, 13, 25})
# nvmlValueType_t -> member of the value union.
_UNION = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_MEMORY_V2 = 0x02000028
_BLANKS = frozenset({0x7FFFFFF0, 0x7FFFFFF1, 0x7FFFFFF2, 0x7FFFFFF3, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
"""Numbers that vendor libraries use for "no value" (DCGM's int32 blanks leak through NVML on some drivers)."""


class Plan:
    """How one cadence of one GPU is read: a batch of field ids, calls, GPM metrics; each with its places."""

    __slots__ = ("calls", "field_places", "fields", "gpm")

    def __init__(self) -> None:
        self.fields: list[tuple[int, int]] = []
        self.field_places: list[int] = []
        self.calls: dict[tuple[str, tuple[int, ...]], list[tuple[int, str | int | None]]] = {}
        self.gpm: list[tuple[int, int]] = []


class Frame:
    """One collection of one cadence: `values` in `BY_CADENCE` order (None: absent), `absent` says why by key."""

    __slots__ = ("absent", "dropped", "taken_at", "values")

    def __init__(self, size: int, taken_at: float) -> None:
        self.values: list[float | int | None] = [None] * size
        self.absent: dict[str, str] = {}
        self.dropped: dict[str, int] = {}
        self.taken_at = taken_at


class GpuReader:
    """Reads one GPU through its handle; every method may raise `DeviceLost`, `ResetRequired` or `DriverMismatch`.

    Args:
        vendor: pynvml or what stands for it.
        handle: NVML's handle of the GPU.
        clock: monotonic seconds.
        guard: `guard(name, function, *args)` calls the vendor; it keeps the flight recorder.
        wanted: keys to read; None reads the whole catalogue.
    """

    def __init__(
        self,
        vendor: Any,
        handle: Any,
        clock: Callable[[], float],
        guard: Callable[..., Any],
        wanted: frozenset[str] | None = None,
    ) -> None:
        self._vendor = vendor
        self._handle = handle
        self._clock = clock
        self._guard = guard
        self._wanted = wanted
        self._error: type[Exception] = vendor.NVMLError
        self._choice: dict[str, int] = {}
        self._plans: dict[str, Plan] = {}
        self._gpm = GpmSampler(vendor, handle, guard, clock)
        self.gpm_absent = self._gpm.absent

    def sources(self) -> dict[str, str]:
        """Return key -> source name of every quantity that has a supported query left."""
        result = {}
        for fields in BY_CADENCE.values():
            for field in fields:
                query = self._query(field)
                if query is not None:
                    result[field.key] = "gpm" if isinstance(query, Gpm) else "nvml"
        return result

    def read(self, cadence: str) -> Frame:
        """Read one cadence. Quantities that fail alone are absent with a reason; fatal errors are raised."""
        fields = BY_CADENCE[cadence]
        while True:
            plan = self._plans.get(cadence) or self._make_plan(cadence)
            frame = Frame(len(fields), self._clock())
            replan = self._read_fields(plan, fields, frame)
            replan |= self._read_calls(plan, fields, frame)
            if plan.gpm:
                self._read_gpm(plan, fields, frame)
            if not replan:
                break
            # A query turned out unsupported: the catalogue's next one is tried within the same collection, so that
            # the first frame is complete already. Each round retires at least one query, so this ends.
            self._plans.pop(cadence, None)
        for field in fields:
            if self._query(field) is None:
                frame.absent[field.key] = "not_supported"
        return frame

    def close(self) -> None:
        """Free the GPM samples."""
        self._gpm.close()

    def _query(self, field: GpuField) -> Query | None:
        number = self._choice.get(field.key, 0)
        if self._wanted is not None and field.key not in self._wanted:
            return None
        if number >= len(field.queries):
            return None
        query = field.queries[number]
        return None if isinstance(query, Gpm) and self._gpm.absent else query

    def _make_plan(self, cadence: str) -> Plan:
        plan = Plan()
        for place, field in enumerate(BY_CADENCE[cadence]):
            query = self._query(field)
            if isinstance(query, FieldId):
                plan.fields.append((query.id, query.scope))
                plan.field_places.append(place)
            elif isinstance(query, Call):
                plan.calls.setdefault((query.function, query.args), []).append((place, query.pick))
            elif isinstance(query, Gpm):
                plan.gpm.append((place, query.id))
        self._plans[cadence] = plan
        return plan

    def _retire(self, field: GpuField) -> bool:
        self._choice[field.key] = self._choice.get(field.key, 0) + 1
        return True

    def _failed(self, code: int, what: str, field: GpuField, frame: Frame) -> bool:
        """Handle return `code` of one quantity; True if the catalogue's next query is to be tried."""
        if code in FATAL_CODES:
            raise translate(code, what)
        if code in _UNSUPPORTED_CODES:
            return self._retire(field)
        frame.absent[field.key] = slug_of(code)
        return False

    def _read_fields(self, plan: Plan, fields: tuple[GpuField, ...], frame: Frame) -> bool:
        if not plan.fields:
            return False
        name = "nvmlDeviceGetFieldValues"
        try:
            answers = self._guard(name, self._vendor.nvmlDeviceGetFieldValues, self._handle, plan.fields)
        except self._error as error:
            code = getattr(error, "value", 999)
            failed = [self._failed(code, name, fields[place], frame) for place in plan.field_places]
            return any(failed)
        replan = False
        for place, answer in zip(plan.field_places, answers, strict=True):
            code = answer.nvmlReturn
            if code:
                replan |= self._failed(code, f"{name} id {answer.fieldId}", fields[place], frame)
            else:
                kind = answer.valueType
                raw = getattr(answer.value, _UNION[kind]) if 0 <= kind < len(_UNION) else math.nan
                self._put(place, fields[place], raw, frame)
        return replan

    def _read_calls(self, plan: Plan, fields: tuple[GpuField, ...], frame: Frame) -> bool:
        replan = False
        for (function, args), places in plan.calls.items():
            try:
                result = self._call(function, args)
            except self._error as error:
                code = getattr(error, "value", 999)
                for place, _ in places:
                    replan |= self._failed(code, function, fields[place], frame)
                continue
            for place, pick in places:
                self._put(place, fields[place], _picked(result, pick), frame)
        return replan

    def _call(self, function: str, args: tuple[int, ...]) -> Any:
        if function == "memory_info":
            # v2 tells "reserved by the driver" from "used"; drivers before 510 know only v1 (no reserved).
            return self._guard(
                "nvmlDeviceGetMemoryInfo",
                self._vendor.nvmlDeviceGetMemoryInfo,
                self._handle,
                getattr(self._vendor, "nvmlMemory_v2", _MEMORY_V2),
            )
        method = getattr(self._vendor, function, None)
        if method is None:
            raise self._vendor.NVMLError(self._vendor.NVML_ERROR_FUNCTION_NOT_FOUND)
        return self._guard(function, method, self._handle, *args)

    def _read_gpm(self, plan: Plan, fields: tuple[GpuField, ...], frame: Frame) -> None:
        values = self._gpm.sample([metric for _, metric in plan.gpm])
        for place, metric in plan.gpm:
            code, raw = values.get(metric, (21, math.nan))
            if code == 0:
                self._put(place, fields[place], raw, frame)
            else:
                frame.absent[fields[place].key] = slug_of(code)

    @staticmethod
    def _put(place: int, field: GpuField, raw: Any, frame: Frame) -> None:
        """Store a raw value in base units unless it is blank, NaN or impossible; say which and count it."""
        if raw is None:
            frame.absent[field.key] = "no_data"
            return
        if not isinstance(raw, int | float):
            # A vendor, or a recording, that answers with something else than a number costs this value alone.
            frame.absent[field.key] = "impossible"
            frame.dropped["malformed"] = frame.dropped.get("malformed", 0) + 1
            return
        value = raw * field.scale
        if field.low <= value <= field.high and raw not in _BLANKS:
            # A measurement's error can carry a share just past 1; what is far past it was refused above.
            frame.values[place] = min(value, 1.0) if field.high == 1.05 else value
            return
        reason = "nan" if math.isnan(value) else "sentinel" if raw in _BLANKS else "impossible"
        frame.absent[field.key] = reason
        frame.dropped[reason] = frame.dropped.get(reason, 0) + 1


def _picked(result: Any, pick: str | int | None) -> Any:
    if pick is None:
        return result
    if pick == "len":
        return len(result)
    return result[pick] if isinstance(pick, int) else getattr(result, pick, None)
