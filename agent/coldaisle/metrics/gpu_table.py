"""The latest values of every GPU, with their age. What is too old, lost or quarantined is absent: never last-good."""

from typing import Any

from coldaisle.domain.gpu import GpuIdentity, GpuState
from coldaisle.domain.readings import Absence, Reading, Source
from coldaisle.metrics.gpu_fields import BY_CADENCE, BY_KEY, INTERVALS, POSITION, STATIC

LIFETIME_INTERVALS = 3
"""A value is absent once it is older than this many intervals of its own cadence (DESIGN: a missed deadline)."""

USABLE = frozenset({GpuState.OK, GpuState.LATE})
"""States in which values are published while they are young enough."""


class GpuRecord:
    """One GPU: identity, state, and one row of values a cadence."""

    __slots__ = ("absent", "driver_seconds", "identity", "reason", "remedy", "rows", "sources", "state")

    def __init__(self, identity: GpuIdentity) -> None:
        self.identity = identity
        self.state = GpuState.STARTING
        self.reason = ""
        self.remedy = ""
        self.sources: dict[str, str] = {}
        self.rows: dict[str, tuple[float, list[Any]]] = {}
        self.absent: dict[str, dict[str, str]] = {}
        self.driver_seconds = 0.0


class GpuTable:
    """All GPUs by index. One writer (the supervisor), on the event loop.

    Args:
        interval: seconds between ticks; the cadences' intervals are multiples of it.
    """

    def __init__(self, interval: float = 1.0) -> None:
        self.interval = interval
        self.gpus: dict[int, GpuRecord] = {}
        self.dropped: dict[tuple[str, str], int] = {}

    def identify(self, identity: GpuIdentity, sources: dict[str, str]) -> GpuRecord:
        """Note who is at an index. A different UUID there is another GPU: nothing of the old one is kept."""
        record = self.gpus.get(identity.index)
        if record is None or record.identity.uuid != identity.uuid:
            record = self.gpus[identity.index] = GpuRecord(identity)
        record.identity = identity
        record.sources = sources
        return record

    def update(self, index: int, cadence: str, taken_at: float, values: list[Any]) -> None:
        """Store one frame; a GPU that was not identified yet has no place for it."""
        record = self.gpus.get(index)
        if record is not None and len(values) == len(BY_CADENCE[cadence]):
            record.rows[cadence] = (taken_at, values)

    def drop(self, source: str, reason: str, count: int) -> None:
        """Count values that were refused."""
        key = (source, reason)
        self.dropped[key] = self.dropped.get(key, 0) + count

    def set_state(self, index: int, state: GpuState, reason: str = "", remedy: str = "") -> bool:
        """Set a GPU's state; True if it changed. Values of an unusable GPU are forgotten at once."""
        record = self.gpus.get(index)
        if record is None:
            return False
        changed = record.state is not state
        record.state, record.reason, record.remedy = state, reason, remedy
        if state not in USABLE:
            record.rows.clear()
        return changed

    def clear(self) -> None:
        """Forget all values (released, driver gone); identities stay."""
        for record in self.gpus.values():
            record.rows.clear()

    def row(self, record: GpuRecord, cadence: str, now: float) -> list[Any] | None:
        """Return the values of one cadence if they are young enough, None otherwise."""
        row = record.rows.get(cadence)
        if row is None:
            return None
        if cadence != STATIC and now - row[0] > LIFETIME_INTERVALS * INTERVALS[cadence] * self.interval:
            return None
        return row[1]

    def value(self, record: GpuRecord, key: str, now: float) -> float | None:
        """Return one value in base units, None if absent."""
        cadence, position = POSITION[key]
        row = self.row(record, cadence, now)
        return None if row is None else row[position]

    def reading(self, record: GpuRecord, key: str, now: float) -> Reading | Absence:
        """Return one quantity with its age and source, or why it is absent."""
        cadence, position = POSITION[key]
        row = record.rows.get(cadence)
        if row is None:
            return _absence_of(record.state)
        if self.row(record, cadence, now) is None:
            return Absence.STALE
        value = row[1][position]
        if value is None:
            reason = record.absent.get(cadence, {}).get(key)
            return Absence(reason) if reason in _ABSENCES else Absence.NO_DATA
        return Reading(value, row[0], Source(record.sources.get(BY_KEY[key].key, "nvml")))


_ABSENCES = frozenset(absence.value for absence in Absence)


def _absence_of(state: GpuState) -> Absence:
    if state is GpuState.LOST:
        return Absence.LOST
    if state is GpuState.RESET_REQUIRED:
        return Absence.RESET_REQUIRED
    if state in (GpuState.HUNG, GpuState.CRASHED):
        return Absence.QUARANTINED
    return Absence.NO_DATA
