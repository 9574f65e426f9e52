"""Metrics of the configuration: whether the last reload worked, and when."""

from collections.abc import Callable

from coldaisle.collectors.boundary import Result
from coldaisle.config.reload import ReloadState
from coldaisle.metrics.families import Family, Kind, Sample

SUCCESSFUL = Family(
    "coldaisle_config_last_reload_successful",
    Kind.GAUGE,
    "1 if the configuration in use is the file's, 0 if the last attempt to take the file up failed.",
)
SUCCESS_TIME = Family(
    "coldaisle_config_last_reload_success_timestamp_seconds",
    Kind.GAUGE,
    "Unix time at which the configuration was last taken up; the start of the agent counts.",
    (),
    "seconds",
)
RELOADS = Family(
    "coldaisle_config_reloads_total",
    Kind.COUNTER,
    "Attempts to take up a changed configuration, by result: success or failure.",
    ("result",),
)


class ConfigCollector:
    """Publishes a reloader's state; `state` gives it."""

    name = "config"
    families = (SUCCESSFUL, SUCCESS_TIME, RELOADS)

    def __init__(self, state: Callable[[], ReloadState]) -> None:
        self._state = state

    def collect(self, now: float) -> Result:  # noqa: ARG002  the collector interface's
        """Return the state; a failed reload is this collector's problem, so that `/health` names it."""
        state = self._state()
        samples = [
            Sample(SUCCESSFUL, (), int(state.successful)),
            Sample(SUCCESS_TIME, (), state.success_time),
            Sample(RELOADS, ("success",), state.succeeded),
            Sample(RELOADS, ("failure",), state.failed),
        ]
        if state.problems:
            return Result(samples, state.problems[0], "correct the file; it is taken up by itself")
        return Result(samples)
