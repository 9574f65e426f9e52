"""One stream of timed, named events: Xids, anomalies, health changes, actions.

Correlation, the page, `/api/v1/events` and the audit read the same stream, so that they cannot disagree.
"""

from collections import deque
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """How bad, in the words the alerts use."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Event(NamedTuple):
    """Something that happened once.

    `time` is Unix seconds; `kind` the family (`xid`, `health`, `action`, `anomaly`, `config`, `log`); `name` what
    exactly (`xid_79`, `gpu_lost`, `release`); `message` one sentence for a person; `uuid` the GPU concerned;
    `facts` further details by name; `source` who saw it.
    """

    time: float
    kind: str
    name: str
    severity: Severity
    message: str
    source: str
    uuid: str | None = None
    facts: tuple[tuple[str, str], ...] = ()


class EventStream:
    """A bounded history that numbers events and tells listeners.

    Only the main process's event loop appends, so there is no lock. `appended` minus `capacity` events may have
    been forgotten; listeners saw all of them.
    """

    def __init__(self, capacity: int = 1_000) -> None:
        self._events: deque[tuple[int, Event]] = deque(maxlen=capacity)
        self._listeners: list[Callable[[Event], None]] = []
        self.appended = 0

    def append(self, event: Event) -> int:
        """Add an event, tell the listeners, return its sequence number (from 1)."""
        self.appended += 1
        self._events.append((self.appended, event))
        for listener in tuple(self._listeners):
            listener(event)
        return self.appended

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Call `listener` with every later event, in order, on the appender's thread."""
        self._listeners.append(listener)

    def since(self, sequence: int = 0) -> Iterator[tuple[int, Event]]:
        """Yield the remembered events numbered above `sequence`, oldest first."""
        return ((number, event) for number, event in self._events if number > sequence)
