"""What the command line hands to the composition roots, and what they hand back."""

from pathlib import Path
from typing import Any, NamedTuple

from coldaisle.config.models import Config
from coldaisle.domain.errors import ColdaisleError
from coldaisle.domain.node import HealthReport, NodeView

SIMULATED_PRODUCTS = ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200")


class BindError(ColdaisleError):
    """A port or socket cannot be had (exit code 4)."""

    remedy = "stop what holds it (`ss -ltnp`), or choose another with --web.listen-address"


class RunOptions(NamedTuple):
    """How the agent is to run. `config` already has the flags applied."""

    config: Config
    config_path: Path | None = None
    """Watched for changes; None if there is no file."""
    flags: dict[str, Any] = {}  # noqa: RUF012  by dotted key, never written to; reloads put them over the file again
    simulate: str | None = None
    """One of `SIMULATED_PRODUCTS`."""
    gpus: int | None = None
    """How many GPUs to simulate; None: what the product has."""
    scenario: Path | None = None
    seed: int = 0
    replay: Path | None = None
    """Answer from this recording instead of a vendor library."""
    record: Path | None = None
    """Write every vendor answer to this file."""
    web_config_file: Path | None = None


class AbsentReading(NamedTuple):
    """A quantity that a GPU does not give, for `collect --explain`."""

    gpu: str
    quantity: str
    reason: str
    """One of `Absence`."""
    detail: str = ""


class Collected(NamedTuple):
    """One sample of everything."""

    node: NodeView
    health: HealthReport
    text: bytes
    """Exposition, text format 0.0.4."""
    openmetrics: bytes
    absent: tuple[AbsentReading, ...] = ()
