"""Time as a parameter, so that tests move it by hand."""

import time
from typing import Protocol


class Clock(Protocol):
    """Where the agent reads time from."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start, never set back (CLOCK_MONOTONIC: the same in every process)."""
        ...

    def wall(self) -> float:
        """Seconds since the Unix epoch; may jump either way."""
        ...


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def monotonic(self) -> float:
        """Return CLOCK_MONOTONIC in seconds."""
        return time.monotonic()

    def wall(self) -> float:
        """Return Unix time in seconds."""
        return time.time()


class FakeClock:
    """A clock that stands still until it is moved.

    `monotonic` and `wall` move together in `advance`; `set_wall` steps the wall clock alone, as NTP or an
    operator would.
    """

    __slots__ = ("_monotonic", "_wall")

    def __init__(self, monotonic: float = 1_000.0, wall: float = 1_800_000_000.0) -> None:
        self._monotonic = monotonic
        self._wall = wall

    def monotonic(self) -> float:
        """Return the fake monotonic time in seconds."""
        return self._monotonic

    def wall(self) -> float:
        """Return the fake Unix time in seconds."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        if seconds < 0:
            raise ValueError("a monotonic clock cannot go back")
        self._monotonic += seconds
        self._wall += seconds

    def set_wall(self, wall: float) -> None:
        """Step the wall clock alone."""
        self._wall = wall
