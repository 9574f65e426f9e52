"""The one boundary that runs every collector: times it, judges it, and turns failure into absence.

A collector is called on the event loop and must not block: whatever can block (a driver call, a network mount)
has been read before by a driver's own thread or process, and `collect` only picks up the result. A collector never
logs and carries on: it raises, or reports a partial result through `Result.problem`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from coldaisle.domain.clock import Clock
from coldaisle.domain.errors import ColdaisleError
from coldaisle.domain.health import Health, State
from coldaisle.metrics.families import Family, Kind, Sample


class Result(NamedTuple):
    """What one collection gave.

    `samples` are published as they are. `problem` says what is missing and why (state `degraded`), `action` what an
    operator should try; both empty when all is well. `off` marks a collector that has nothing to read here by
    configuration or hardware.
    """

    samples: Sequence[Sample]
    problem: str = ""
    action: str = ""
    off: bool = False


class Collector(Protocol):
    """A source of samples."""

    @property
    def name(self) -> str:
        """Label of the collector's own metrics and its name in `/health`."""
        ...

    @property
    def families(self) -> tuple[Family, ...]:
        """Every family that it can emit."""
        ...

    def collect(self, now: float) -> Result:
        """Return the samples of this tick; `now` is CLOCK_MONOTONIC seconds. Must return within milliseconds."""
        ...


DURATION = Family(
    "coldaisle_collector_duration_seconds",
    Kind.GAUGE,
    "Time that the last run of a collector took in the main process.",
    ("collector",),
    "seconds",
)
SUCCESS = Family(
    "coldaisle_collector_success",
    Kind.GAUGE,
    "1 if the last run of a collector gave everything it should, 0 if it failed or was partial.",
    ("collector",),
)
LAST_SUCCESS = Family(
    "coldaisle_collector_last_success_timestamp_seconds",
    Kind.GAUGE,
    "Unix time of a collector's last complete run; absent before the first.",
    ("collector",),
    "seconds",
)
FAILURES = Family(
    "coldaisle_collector_failures_total",
    Kind.COUNTER,
    "Runs of a collector that raised or were partial.",
    ("collector",),
)
FAMILIES = (DURATION, SUCCESS, LAST_SUCCESS, FAILURES)


class _Record:
    __slots__ = ("failures", "health", "last_success_wall", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.failures = 0
        self.last_success_wall: float | None = None
        self.health = Health(name, State.STARTING)


class Boundary:
    """Runs collectors in order and keeps each one's duration, success, age and health.

    Args:
        collectors: run in this order; two may not share a name.
        clock: monotonic time for health, wall time for the timestamps.
        stopwatch: measures durations (seconds); a parameter so that tests are exact.
    """

    def __init__(self, collectors: Sequence[Collector], clock: Clock, stopwatch: Callable[[], float]) -> None:
        names = [collector.name for collector in collectors]
        if len(set(names)) != len(names):
            raise ValueError(f"two collectors share a name: {names}")
        self._collectors = list(collectors)
        self._clock = clock
        self._stopwatch = stopwatch
        self._records = {name: _Record(name) for name in names}

    @property
    def families(self) -> tuple[Family, ...]:
        """Every family that can be published, the boundary's own included."""
        return FAMILIES + tuple(family for collector in self._collectors for family in collector.families)

    def health(self) -> list[Health]:
        """Verdict on each collector, in order."""
        return [record.health for record in self._records.values()]

    def run(self, now: float) -> list[Sample]:
        """Run every collector once and return all samples, the boundary's own last."""
        samples: list[Sample] = []
        own: list[Sample] = []
        for collector in self._collectors:
            record = self._records[collector.name]
            start = self._stopwatch()
            try:
                result = collector.collect(now)
            except ColdaisleError as error:
                record.health = Health(record.name, State.FAILED, str(error), error.remedy, record.health.last_success)
                record.failures += 1
            except Exception as error:  # noqa: BLE001  the boundary exists so that one collector cannot stop the rest
                reason = f"{type(error).__name__}: {error}"
                record.health = Health(
                    record.name, State.FAILED, reason, "report this as a bug", record.health.last_success
                )
                record.failures += 1
            else:
                samples.extend(result.samples)
                self._judge(record, result, now)
            own += self._own_samples(record, self._stopwatch() - start)
        return samples + own

    def _judge(self, record: _Record, result: Result, now: float) -> None:
        if result.off:
            record.health = Health(record.name, State.OFF, result.problem, result.action)
        elif result.problem:
            record.failures += 1
            record.health = Health(
                record.name, State.DEGRADED, result.problem, result.action, record.health.last_success
            )
        else:
            record.last_success_wall = self._clock.wall()
            record.health = Health(record.name, State.OK, last_success=now)

    def _own_samples(self, record: _Record, duration: float) -> list[Sample]:
        labels = (record.name,)
        samples = [
            Sample(DURATION, labels, duration),
            Sample(SUCCESS, labels, int(record.health.state in (State.OK, State.OFF))),
            Sample(FAILURES, labels, record.failures),
        ]
        if record.last_success_wall is not None:
            samples.append(Sample(LAST_SUCCESS, labels, record.last_success_wall))
        return samples
