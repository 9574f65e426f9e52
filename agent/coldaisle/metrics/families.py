"""Metric families and samples: what collectors hand over and the exposition renders."""

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """OpenMetrics types that the agent uses."""

    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"
    STATESET = "stateset"
    HISTOGRAM = "histogram"


class Family:
    """One metric family.

    Equality is identity (families are module-level constants): a scrape looks up thousands of them and hashing
    six strings each time would cost more than rendering.

    Args:
        name: full sample name; counters end in `_total`, info families in `_info`.
        kind: its type. In the 0.0.4 text format info and state set are written as gauges.
        help: one sentence that says what it is and where it comes from.
        labels: names of the labels, in the order in which samples give the values. The last label of a state set
            is the state's name.
        unit: base unit suffix of the name (`celsius`, `bytes`, ...), empty for none.
    """

    __slots__ = ("help", "kind", "labels", "name", "unit")

    def __init__(self, name: str, kind: Kind, help: str, labels: tuple[str, ...] = (), unit: str = "") -> None:
        self.name = name
        self.kind = kind
        self.help = help
        self.labels = labels
        self.unit = unit

    def __repr__(self) -> str:
        return f"Family({self.name!r}, {self.kind.value})"


class HistogramValue(NamedTuple):
    """A histogram's state. `counts` are per bucket (not cumulative), one more than `edges` (the rest, to +Inf)."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class Sample(NamedTuple):
    """One series' present value. `labels` are the values for `family.labels`, in that order."""

    family: Family
    labels: tuple[str, ...]
    value: float | int | HistogramValue
