"""What the web layer asks of the rest: read-only, answered from memory, never waiting for a driver."""

from typing import NamedTuple, Protocol

from coldaisle import __version__
from coldaisle.domain.clock import Clock
from coldaisle.domain.events import EventStream
from coldaisle.domain.node import HealthReport, NodeView
from coldaisle.metrics.exposition import Exposition


class Agent(Protocol):
    """The running agent, seen from HTTP."""

    clock: Clock
    events: EventStream

    def exposition(self) -> Exposition:
        """The last complete sample, rendered."""
        ...

    def health(self) -> HealthReport:
        """The verdict of `/health`, judged now."""
        ...

    def ready(self) -> tuple[bool, str]:
        """Whether every source has answered or failed once, and what is still awaited."""
        ...

    def node(self) -> NodeView:
        """What the page shows."""
        ...


class Settings(NamedTuple):
    """What the web layer shows and does that is not the agent's state."""

    version: str = __version__
    refresh_seconds: int = 5
    """How often an open page asks for itself again; 0 for never."""
