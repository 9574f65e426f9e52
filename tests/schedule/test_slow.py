"""Slow jobs on the real APScheduler, with its wall clock in the test's hand."""

import asyncio
import threading
from datetime import datetime

import apscheduler.schedulers.base
import pytest

from coldaisle.domain.clock import FakeClock
from coldaisle.schedule.families import JOB_FAMILIES
from coldaisle.schedule.slow import SlowJobs


class World:
    """A fake clock that APScheduler reads too; `pass_time` lets timers of the past fire."""

    def __init__(self, monkeypatch):
        self.clock = clock = FakeClock()

        class Wall(datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime.fromtimestamp(clock.wall(), tz)

        monkeypatch.setattr(apscheduler.schedulers.base, "datetime", Wall)
        self.errors = []
        self.jobs = SlowJobs(clock, lambda name, error: self.errors.append((name, str(error))))

    async def pass_time(self, seconds, *, checking=True):
        """One second after another, as the tick does it. APScheduler's own timer is what `wakeup` stands for."""
        for _ in range(seconds):
            self.clock.advance(1)
            if checking:
                self.jobs.check_clock()
            self.jobs._scheduler.wakeup()
            for _ in range(5):
                await asyncio.sleep(0)

    def count(self, result, name="job"):
        return self.jobs._records[name].counts[result]


@pytest.fixture
async def world(monkeypatch):
    world = World(monkeypatch)
    yield world
    world.jobs.stop()
    await asyncio.sleep(0)


async def nothing():
    pass


async def eventually(condition):
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  threads and APScheduler set no asyncio.Event
            await asyncio.sleep(0.001)


async def test_jobs_repeat(world):
    """A job runs at its first time and then at its interval."""
    world.jobs.every(30, "job", nothing, first=10)
    world.jobs.start()
    await world.pass_time(9)
    assert world.count("ok") == 0
    await world.pass_time(91)
    assert world.count("ok") == 4


@pytest.mark.parametrize("step", [-600, 600, -86_400, 86_400])
async def test_a_wall_clock_step_silences_nothing(world, step):
    """Setting the wall clock back or forward changes neither the number nor the spacing of runs."""
    world.jobs.every(30, "job", nothing, first=30)
    world.jobs.start()
    await world.pass_time(45)
    assert world.count("ok") == 1
    world.clock.set_wall(world.clock.wall() + step)
    await world.pass_time(14)
    assert world.count("ok") == 1
    await world.pass_time(1)
    assert world.count("ok") == 2
    await world.pass_time(60)
    assert world.count("ok") == 4
    assert world.jobs.clock_steps == 1


async def test_apscheduler_alone_would_fall_silent(world):
    """The reason for check_clock: without it a step back by ten minutes stops a 30 s job."""
    world.jobs.every(30, "job", nothing, first=30)
    world.jobs.start()
    await world.pass_time(45)
    world.clock.set_wall(world.clock.wall() - 600)
    await world.pass_time(300, checking=False)
    assert world.count("ok") == 1


async def test_slewing_is_no_step(world):
    """A clock that NTP slews by half a second per check is not stepped."""
    for _ in range(20):
        world.clock.advance(1)
        world.clock.set_wall(world.clock.wall() + 0.5)
        assert world.jobs.check_clock() == 0
    assert world.jobs.clock_steps == 0


async def test_runs_never_overlap(world):
    """A coroutine that outlasts its interval is not started again; the omission is counted."""
    release = asyncio.Event()
    world.jobs.every(10, "job", release.wait, first=0)
    world.jobs.start()
    await world.pass_time(25)
    assert (world.count("ok"), world.count("overlap")) == (0, 2)
    release.set()
    await world.pass_time(5)
    assert world.count("ok") == 2


async def test_errors_are_counted_and_reported(world):
    """A job that raises is counted, reported with its name, and runs again; its last success stays absent."""

    async def broken():
        raise ValueError("disk on fire")

    world.jobs.every(10, "job", broken)
    world.jobs.start()
    await world.pass_time(15)
    assert world.count("error") == 2
    assert world.errors == [("job", "disk on fire")] * 2
    assert {sample.family.name for sample in world.jobs.samples()} == {
        "coldaisle_clock_steps_total",
        "coldaisle_job_runs_total",
        "coldaisle_job_duration_seconds",
    }


async def test_blocking_functions_run_in_a_daemon_thread(world):
    """A plain function runs off the event loop, in a thread that cannot hold up the end of the process."""
    seen = []
    world.jobs.every(10, "job", lambda: seen.append(threading.current_thread()))
    world.jobs.start()
    await world.pass_time(1)
    await eventually(lambda: world.count("ok") == 1)
    assert seen[0].daemon
    assert seen[0] is not threading.current_thread()
    assert {sample.family for sample in world.jobs.samples()} == set(JOB_FAMILIES)


async def test_a_blocking_function_may_raise(world):
    """What a plain function raises arrives like a coroutine's error."""

    def broken():
        raise OSError("stale file handle")

    world.jobs.every(10, "job", broken)
    world.jobs.start()
    await world.pass_time(1)
    await eventually(lambda: world.errors)
    assert world.errors == [("job", "stale file handle")]


async def test_stop_does_not_wait_for_a_hung_thread(world):
    """Stopping returns while a job hangs; the thread's late end disturbs nothing."""
    hang, entered = threading.Event(), threading.Event()

    def stuck():
        entered.set()
        hang.wait(10)

    world.jobs.every(10, "job", stuck)
    world.jobs.start()
    await world.pass_time(1)
    await eventually(entered.is_set)
    world.jobs.stop()
    hang.set()
    await eventually(lambda: not any(thread.name == "job-job" for thread in threading.enumerate()))
    assert world.count("ok") == 0


async def test_interval_change(world):
    """A new interval counts from the moment of the change."""
    world.jobs.every(100, "job", nothing, first=100)
    world.jobs.start()
    await world.pass_time(50)
    world.jobs.set_interval("job", 10)
    await world.pass_time(35)
    assert world.count("ok") == 3


async def test_names_are_unique(world):
    """Two jobs cannot share a name, as their metrics would be one."""
    world.jobs.every(10, "job", nothing)
    with pytest.raises(ValueError, match="share"):
        world.jobs.every(10, "job", nothing)
