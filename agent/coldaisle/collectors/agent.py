"""The agent about itself: children, sampling, configuration. Filled by the composition root's counters."""

from collections.abc import Callable, Mapping

from coldaisle.collectors.boundary import Result
from coldaisle.domain.health import Health, State
from coldaisle.metrics.families import Family, Kind, Sample

CHILD_RESTARTS = Family(
    "coldaisle_child_restarts_total",
    Kind.COUNTER,
    "Times that a child process was started again, by cause.",
    ("child", "reason"),
)
QUARANTINED = Family(
    "coldaisle_gpus_quarantined", Kind.GAUGE, "GPUs set aside because a call on them hung or crashed the child."
)
RELEASED = Family("coldaisle_released", Kind.GAUGE, "1 while all vendor handles are closed on an operator's request.")
SOURCE_STATE = Family(
    "coldaisle_source_state",
    Kind.STATESET,
    "Health of each source and collector, as /health tells it: 1 for the present state.",
    ("part", "state"),
)
SOURCE_AGE = Family(
    "coldaisle_source_last_success_age_seconds",
    Kind.GAUGE,
    "Age of a source's last good answer; absent before the first.",
    ("part",),
    "seconds",
)
EVENTS = Family("coldaisle_events_total", Kind.COUNTER, "Events on the agent's stream since it started.")
RESTART_REASONS = ("crash", "hang", "init_hang", "recount", "recovered", "reconfigured")


class AgentCollector:
    """Reports children and source health.

    Args:
        restarts: returns restarts of the vendor child by reason.
        quarantined, released, events: present numbers.
        health: returns the sources' verdicts (collectors report their own success elsewhere).
    """

    name = "agent"
    families = (CHILD_RESTARTS, QUARANTINED, RELEASED, SOURCE_STATE, SOURCE_AGE, EVENTS)

    def __init__(
        self,
        *,
        restarts: Callable[[], Mapping[str, int]],
        quarantined: Callable[[], int],
        released: Callable[[], bool],
        events: Callable[[], int],
        health: Callable[[float], list[Health]],
    ) -> None:
        self._restarts = restarts
        self._quarantined = quarantined
        self._released = released
        self._events = events
        self._health = health
        self._states: dict[str, list[tuple[State, tuple[str, str]]]] = {}

    def collect(self, now: float) -> Result:
        """Return the agent's own samples."""
        restarts = self._restarts()
        samples = [Sample(CHILD_RESTARTS, ("nvml", reason), restarts.get(reason, 0)) for reason in RESTART_REASONS]
        samples.append(Sample(QUARANTINED, (), self._quarantined()))
        samples.append(Sample(RELEASED, (), int(self._released())))
        samples.append(Sample(EVENTS, (), self._events()))
        for health in self._health(now):
            states = self._states.get(health.name)
            if states is None:
                states = self._states[health.name] = [(state, (health.name, state.value)) for state in State]
            samples.extend(Sample(SOURCE_STATE, labels, int(state is health.state)) for state, labels in states)
            if health.last_success is not None:
                samples.append(Sample(SOURCE_AGE, (health.name,), max(0.0, now - health.last_success)))
        return Result(samples)
