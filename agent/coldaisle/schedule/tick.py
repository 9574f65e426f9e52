"""The monotonic tick: runs on a fixed grid, never catches up, never piles up.

Setting the wall clock changes nothing here. A run that ends after the next one was due is followed by the next point
of the grid that is still ahead; the points in between are counted as missed, not run late.
"""

import asyncio
import math
from bisect import bisect_left
from collections.abc import Awaitable, Callable

from coldaisle.domain.clock import Clock
from coldaisle.metrics.families import HistogramValue, Sample
from coldaisle.schedule import families

_EDGES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

# Starting later than this part of the interval counts as late.
_LATE = 0.1


class Grid:
    """When runs are due: points `interval` apart. All times are monotonic seconds."""

    __slots__ = ("due", "interval")

    def __init__(self, start: float, interval: float) -> None:
        self.due = start
        self.interval = interval

    def catch_up(self, now: float) -> int:
        """Move `due` to the last point that is not after `now`; return how many points were left out."""
        skipped = math.floor((now - self.due) / self.interval)
        if skipped <= 0:
            return 0
        self.due += skipped * self.interval
        return skipped

    def advance(self, now: float) -> int:
        """Move `due` to the next point, or the first that is not before `now`; return the points left out."""
        self.due += self.interval
        if now <= self.due:
            return 0
        skipped = math.ceil((now - self.due) / self.interval)
        self.due += skipped * self.interval
        return skipped


class Tick:
    """Calls `run(now)` once per interval until stopped.

    Args:
        interval: seconds.
        clock: its monotonic time alone decides.
        run: gets CLOCK_MONOTONIC seconds; the next run waits for its end.
        name: the label of its metrics.
        on_error: told of what `run` raised; the tick goes on.
        wait: waits so many seconds or until woken; None for the event loop's own timers.
    """

    def __init__(
        self,
        interval: float,
        clock: Clock,
        run: Callable[[float], Awaitable[None]],
        *,
        name: str = "sample",
        on_error: Callable[[Exception], None] = lambda _error: None,
        wait: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self._clock = clock
        self._run = run
        self._on_error = on_error
        self._wait = wait or self._wait_on_loop
        self._grid = Grid(clock.monotonic(), interval)
        self._stopping = self._running = False
        self._wake = asyncio.Event()
        self._labels = (name,)
        self._counts = [0] * (len(_EDGES) + 1)
        self._sum = 0.0
        self.late = self.missed = self.overrun = self.failures = 0

    @property
    def interval(self) -> float:
        """Seconds between runs."""
        return self._grid.interval

    def set_interval(self, seconds: float) -> None:
        """Change the interval; the next run comes one new interval after the last one was due, or at once."""
        if seconds == self._grid.interval:
            return
        if not self._running:
            # During a run `due` is the run's own, and what comes next is reckoned when it ends.
            self._grid.due = max(self._grid.due + seconds - self._grid.interval, self._clock.monotonic())
        self._grid.interval = seconds
        self._wake.set()

    def stop(self) -> None:
        """End `serve` after the run that is going on."""
        self._stopping = True
        self._wake.set()

    async def serve(self) -> None:
        """Run at once and then on the grid, until `stop`."""
        self._grid.due = self._clock.monotonic()
        while not self._stopping:
            remaining = self._grid.due - self._clock.monotonic()
            if remaining > 0:
                self._wake.clear()
                await self._wait(remaining)
            else:
                await self._once()

    async def _once(self) -> None:
        start = self._clock.monotonic()
        self.missed += self._grid.catch_up(start)
        interval = self._grid.interval
        if start - self._grid.due > _LATE * interval:
            self.late += 1
        self._running = True
        try:
            await self._run(start)
        except Exception as error:  # noqa: BLE001  sampling must outlive any bug; the error is counted and reported
            self.failures += 1
            self._on_error(error)
        finally:
            self._running = False
        end = self._clock.monotonic()
        duration = end - start
        self.overrun += duration > interval
        self._counts[bisect_left(_EDGES, duration)] += 1
        self._sum += duration
        self.missed += self._grid.advance(end)
        if self._grid.due <= end:
            # A run that fills its interval to the last moment must still let everything else have a turn.
            await asyncio.sleep(0)

    async def _wait_on_loop(self, seconds: float) -> None:
        timer = asyncio.get_running_loop().call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def samples(self) -> list[Sample]:
        """Return the tick's own metrics."""
        labels = self._labels
        return [
            Sample(families.TICK_DURATION, labels, HistogramValue(_EDGES, tuple(self._counts), self._sum)),
            Sample(families.TICK_INTERVAL, labels, self._grid.interval),
            Sample(families.TICK_LATE, labels, self.late),
            Sample(families.TICK_MISSED, labels, self.missed),
            Sample(families.TICK_OVERRUN, labels, self.overrun),
            Sample(families.TICK_FAILURES, labels, self.failures),
        ]
