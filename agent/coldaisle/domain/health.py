"""A verdict on a part: state, reason, and what to do about it. Never a bare boolean."""

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """How a part is."""

    OK = "ok"
    DEGRADED = "degraded"
    """Works in part: what it cannot give is absent and named in the reason."""
    FAILED = "failed"
    """Gives nothing."""
    OFF = "off"
    """Not wanted or not there by configuration; never counts against the node."""
    STARTING = "starting"
    """Has neither answered nor failed yet."""


class Health(NamedTuple):
    """Verdict on one part (a source, a collector, a GPU).

    `reason` is a sentence for a person and empty when ok; `action` is what to try first.
    `last_success` is CLOCK_MONOTONIC seconds of the last good answer, None if there was none.
    """

    name: str
    state: State
    reason: str = ""
    action: str = ""
    last_success: float | None = None
