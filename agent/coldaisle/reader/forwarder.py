"""Between source and main process: folds repeats, limits the rate, never drops without counting."""

from collections.abc import Callable
from typing import Any

from coldaisle.reader.kernel_messages import Message

FLUSH_EVERY = 0.25
"""Seconds between two deliveries; the first message after a pause goes at once."""
PENDING_LIMIT = 64
"""Different messages a delivery can hold; with FLUSH_EVERY, at most 256 packets a second."""


class Forwarder:
    """Collects messages by key and sends each key once a delivery, with a count.

    `suppressed` counts messages without a packet of their own: those folded into another's count, and those dropped
    because a delivery was full (`dropped` counts these alone).

    Args:
        send: delivers one packet; False if the receiver has no room now.
    """

    def __init__(self, send: Callable[[dict[str, Any]], bool]) -> None:
        self._send = send
        self._pending: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._flushed_at: float | None = None
        self.suppressed = 0
        self.dropped = 0

    @property
    def empty(self) -> bool:
        """Whether everything added has been sent."""
        return not self._pending

    def add(self, source: str, message: Message, time: float, sequence: int) -> None:
        """Take one message; `time` is Unix seconds."""
        key = (source, *message.key)
        if (waiting := self._pending.get(key)) is not None:
            waiting["n"] += 1
            waiting["seq"] = sequence
            self.suppressed += 1
        elif len(self._pending) >= PENDING_LIMIT:
            self.suppressed += 1
            self.dropped += 1
        else:
            self._pending[key] = _packet(source, message, time, sequence)

    def due_in(self, now: float) -> float | None:
        """Seconds until `flush` will send something, None if there is nothing."""
        if not self._pending:
            return None
        return 0.0 if self._flushed_at is None else max(0.0, self._flushed_at + FLUSH_EVERY - now)

    def flush(self, now: float) -> bool:
        """Send what is due; True if something was sent. What finds no room stays for the next time."""
        if self.due_in(now) != 0.0:
            return False
        self._flushed_at = now
        sent = False
        for key in tuple(self._pending):
            if not self._send(self._pending[key]):
                break
            del self._pending[key]
            sent = True
        return sent


def _packet(source: str, message: Message, time: float, sequence: int) -> dict[str, Any]:
    return {
        "k": "event",
        "source": source,
        "kind": message.kind,
        "time": round(time, 3),
        "seq": sequence,
        "n": 1,
        "bdf": message.bdf,
        "code": message.code,
        "pid": message.pid,
        "process": message.process,
        "device": message.device,
        "fatal": message.fatal,
        "facts": dict(message.facts),
        "detail": message.detail,
    }
