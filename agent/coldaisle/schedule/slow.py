"""Slow jobs on APScheduler 3: inventory, forecasts, walkers, reports. Nothing that sampling depends on.

APScheduler reads the wall clock, and stops firing for ten minutes when that is set back by ten. `check_clock`, called
on every tick, notices such a step and moves every job's next run by as much, so that the spacing stays what it was.

Blocking functions run each in a daemon thread of their own: a walker stuck in a dead mount must not hold up the end of
the process, as a pool's threads would. There are never more threads than jobs, as no job runs twice at a time.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from inspect import iscoroutinefunction
from typing import Any

from apscheduler.events import (
    EVENT_JOB_ERROR,
    EVENT_JOB_EXECUTED,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
)
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from coldaisle.domain.clock import Clock
from coldaisle.metrics.families import Sample
from coldaisle.schedule import families

_RESULTS = {
    EVENT_JOB_EXECUTED: "ok",
    EVENT_JOB_ERROR: "error",
    EVENT_JOB_MISSED: "missed",
    EVENT_JOB_MAX_INSTANCES: "overlap",
}

# NTP slews at most half a millisecond a second; more than this between two ticks was set by someone.
_STEP = 1.0


class _Record:
    __slots__ = ("counts", "duration", "last_success")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(_RESULTS.values(), 0)
        self.duration: float | None = None
        self.last_success: float | None = None


async def _in_thread(name: str, function: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish(error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def body() -> None:
        error: BaseException | None = None
        try:
            function()
        except Exception as raised:  # noqa: BLE001  carried over to the event loop, where APScheduler reports it
            error = raised
        try:
            loop.call_soon_threadsafe(finish, error)
        except RuntimeError:
            # The loop has ended, as it does when the agent stops while a job hangs: nobody waits any more.
            return

    threading.Thread(target=body, name=f"job-{name}", daemon=True).start()
    await done


class SlowJobs:
    """Jobs repeated at intervals, on the running event loop.

    Args:
        clock: both of its times; a difference between their paces is a step of the wall clock.
        on_error: told the name of a job and what it raised; the job stays scheduled.
    """

    def __init__(
        self, clock: Clock, on_error: Callable[[str, BaseException], None] = lambda _name, _error: None
    ) -> None:
        self._clock = clock
        self._on_error = on_error
        self._scheduler = AsyncIOScheduler(
            timezone=UTC, job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        )
        self._scheduler.add_listener(self._note, sum(_RESULTS))
        self._records: dict[str, _Record] = {}
        self._offset = clock.wall() - clock.monotonic()
        self.clock_steps = 0

    def every(
        self, seconds: float, name: str, job: Callable[[], None] | Callable[[], Awaitable[None]], *, first: float = 0.0
    ) -> None:
        """Run `job` every so many seconds, the first time after `first` seconds.

        A coroutine function runs on the event loop and must not block; a plain function runs in a thread.
        """
        if name in self._records:
            raise ValueError(f"two jobs share the name {name}")
        record = self._records[name] = _Record()

        async def timed() -> None:
            start = self._clock.monotonic()
            try:
                if iscoroutinefunction(job):
                    await job()
                else:
                    await _in_thread(name, job)  # type: ignore[arg-type]  # told apart the line above
            finally:
                record.duration = self._clock.monotonic() - start
            record.last_success = self._clock.wall()

        self._scheduler.add_job(
            timed, "interval", seconds=seconds, id=name, name=name, next_run_time=self._after(first)
        )

    def set_interval(self, name: str, seconds: float) -> None:
        """Change a job's interval; its next run comes one new interval from now."""
        self._scheduler.reschedule_job(name, trigger="interval", seconds=seconds)
        self._scheduler.modify_job(name, next_run_time=self._after(seconds))

    def start(self) -> None:
        """Begin; needs a running event loop."""
        self._scheduler.start()

    def stop(self) -> None:
        """Start no more runs, cancel coroutines; threads that still run are left to end by themselves."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def check_clock(self) -> float:
        """Keep the jobs' spacing if the wall clock was set; return the step in seconds, 0 for none."""
        offset = self._clock.wall() - self._clock.monotonic()
        step, self._offset = offset - self._offset, offset
        if abs(step) <= _STEP:
            return 0.0
        self.clock_steps += 1
        for job in self._scheduler.get_jobs():
            # A job is without a time only while it is paused, which nothing here does.
            if job.next_run_time is not None:
                job.modify(next_run_time=job.next_run_time + timedelta(seconds=step))
        return step

    def samples(self) -> list[Sample]:
        """Return the metrics of all jobs."""
        samples = [Sample(families.CLOCK_STEPS, (), self.clock_steps)]
        for name, record in self._records.items():
            samples += [Sample(families.JOB_RUNS, (name, result), count) for result, count in record.counts.items()]
            if record.duration is not None:
                samples.append(Sample(families.JOB_DURATION, (name,), record.duration))
            if record.last_success is not None:
                samples.append(Sample(families.JOB_LAST_SUCCESS, (name,), record.last_success))
        return samples

    def _after(self, seconds: float) -> datetime:
        return datetime.fromtimestamp(self._clock.wall(), UTC) + timedelta(seconds=seconds)

    def _note(self, event: Any) -> None:
        record = self._records.get(event.job_id)
        if record is None:
            return
        record.counts[_RESULTS[event.code]] += 1
        if event.code == EVENT_JOB_ERROR:
            self._on_error(event.job_id, event.exception)
