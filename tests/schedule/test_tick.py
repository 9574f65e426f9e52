"""The tick under a clock that is moved by hand."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldaisle.domain.clock import FakeClock, SystemClock
from coldaisle.schedule.families import TICK_FAMILIES
from coldaisle.schedule.tick import Grid, Tick


class Bench:
    """A tick on a fake clock: waiting moves the clock, each run takes what `costs` says, then the tick stops."""

    def __init__(self, costs, interval=1.0, oversleep=()):
        self.clock = FakeClock(monotonic=0.0)
        self.costs = list(costs)
        self.oversleep = list(oversleep)
        self.starts = []
        self.errors = []
        self.before_run = lambda number: None
        self.tick = Tick(interval, self.clock, self.run, wait=self.wait, on_error=self.errors.append)

    async def wait(self, seconds):
        self.clock.advance(seconds + (self.oversleep.pop(0) if self.oversleep else 0))

    async def run(self, now):
        self.starts.append(now)
        self.before_run(len(self.starts))
        cost = self.costs[len(self.starts) - 1]
        if len(self.starts) == len(self.costs):
            self.tick.stop()
        if isinstance(cost, Exception):
            raise cost
        self.clock.advance(cost)

    async def serve(self):
        await asyncio.wait_for(self.tick.serve(), 10)
        return self.starts


async def test_runs_on_the_grid():
    """Runs start on multiples of the interval however long each takes, as long as it is shorter."""
    bench = Bench([0.3, 0.9, 0.0, 0.5])
    assert await bench.serve() == [0, 1, 2, 3]
    assert (bench.tick.late, bench.tick.missed, bench.tick.overrun) == (0, 0, 0)


async def test_an_overrun_skips_whole_intervals():
    """A run of 2.5 intervals is followed by the next grid point; the two in between count as missed."""
    bench = Bench([2.5, 0.1, 0.1])
    assert await bench.serve() == [0, 3, 4]
    assert (bench.tick.missed, bench.tick.overrun) == (2, 1)


async def test_a_late_start_is_counted():
    """Waking late within an interval counts as late; the next run is on the grid again."""
    bench = Bench([0, 0, 0], oversleep=[0.4])
    assert await bench.serve() == pytest.approx([0, 1.4, 2])
    assert (bench.tick.late, bench.tick.missed) == (1, 0)


async def test_a_stopped_process_does_not_catch_up():
    """After 10.2 s without the processor there is one run, not ten; the ten points between count as missed."""
    bench = Bench([0, 0, 0], oversleep=[10.2])
    assert await bench.serve() == pytest.approx([0, 11.2, 12])
    assert (bench.tick.late, bench.tick.missed) == (1, 10)


async def test_the_wall_clock_does_not_matter():
    """Setting the wall clock ten minutes back, then a day forward, changes no run."""
    bench = Bench([0] * 6)
    steps = {2: -600, 4: 86_400}
    bench.before_run = lambda number: bench.clock.set_wall(bench.clock.wall() + steps.get(number, 0))
    assert await bench.serve() == [0, 1, 2, 3, 4, 5]
    assert (bench.tick.late, bench.tick.missed) == (0, 0)


async def test_an_error_does_not_end_it():
    """A run that raises is counted and reported, and the next one comes on time."""
    bench = Bench([ValueError("boom"), 0])
    assert await bench.serve() == [0, 1]
    assert bench.tick.failures == 1
    assert [str(error) for error in bench.errors] == ["boom"]


async def test_the_interval_changes_at_once():
    """A new interval counts from the last due point; a shorter one that is already over means now."""
    bench = Bench([0] * 5)
    bench.before_run = lambda number: bench.tick.set_interval({1: 1.0, 2: 3.0}.get(number, bench.tick.interval))
    assert await bench.serve() == [0, 1, 4, 7, 10]
    bench.tick.set_interval(0.5)
    assert bench.tick.interval == 0.5


async def test_a_waiting_tick_takes_a_new_interval():
    """On the event loop's own timers, a tick that waits for an hour runs as soon as the interval becomes short."""
    ran = asyncio.Event()

    async def run(now):
        if runs:
            ran.set()
        runs.append(now)

    runs = []
    tick = Tick(3600, SystemClock(), run)
    task = asyncio.create_task(tick.serve())
    while not runs:  # noqa: ASYNC110  one turn of the loop is all it takes
        await asyncio.sleep(0)
    tick.set_interval(0.25)
    await asyncio.wait_for(ran.wait(), 10)
    tick.stop()
    await asyncio.wait_for(task, 10)
    assert runs[1] - runs[0] >= 0.25


async def test_stop_ends_a_waiting_tick():
    """Stop wakes a tick that waits."""
    tick = Tick(3600, SystemClock(), lambda now: asyncio.sleep(0))
    task = asyncio.create_task(tick.serve())
    await asyncio.sleep(0)
    tick.stop()
    await asyncio.wait_for(task, 10)
    assert task.done()


async def test_samples():
    """Every family has a sample, and the histogram counts each run once."""
    bench = Bench([0.3, 2.5, 9.0])
    await bench.serve()
    samples = {sample.family: sample for sample in bench.tick.samples()}
    assert set(samples) == set(TICK_FAMILIES)
    histogram = samples[TICK_FAMILIES[0]].value
    assert sum(histogram.counts) == 3
    assert histogram.counts[-1] == 1
    assert histogram.sum == pytest.approx(11.8)
    assert len(histogram.counts) == len(histogram.edges) + 1


@given(
    interval=st.sampled_from([0.25, 0.5, 1.0, 2.0, 60.0]),
    pasts=st.lists(st.floats(min_value=0, max_value=1000, allow_nan=False), max_size=50),
)
def test_the_grid_accounts_for_every_point(interval, pasts):
    """Whatever runs cost, points run plus points missed is every point there was, and time never goes back."""
    grid = Grid(0.0, interval)
    now, missed, runs = 0.0, 0, 0
    for past in pasts:
        now = max(now, grid.due)
        missed += grid.catch_up(now)
        assert grid.due <= now < grid.due + interval * 1.000001
        runs += 1
        now += past
        missed += grid.advance(now)
        assert grid.due >= now - 1e-6
    assert runs + missed == round(grid.due / interval)
