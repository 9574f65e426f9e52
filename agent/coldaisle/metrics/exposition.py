"""Renders samples once per tick; a scrape only hands out bytes.

The sample lines of the text format 0.0.4 and of OpenMetrics 1.0 are the same here, only the metadata above them
differs, so one pass over the samples serves both. What a series' line begins with (name, labels) is remembered from
tick to tick: escaping and joining labels again each second would cost several times the rest.
"""

import gzip
from collections.abc import Iterable, Sequence

from coldaisle.metrics.families import Family, HistogramValue, Kind, Sample

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of `Exposition.text`."""
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
"""Content type of `Exposition.openmetrics`."""

# Level 1 takes a third of level 6's time for a tenth more bytes, and a scrape waits for it once a sample.
_GZIP_LEVEL = 1
_MOST_PROBLEMS = 10

_NUMBERS = (float, int)

# The beginning of a series' line, or of each of a histogram's lines.
_Prefix = str | tuple[str, ...]
_LineCache = dict[tuple[str, ...], _Prefix]
_Work = tuple[_LineCache, _LineCache, list[str]]


class Exposition:
    """One complete sample, ready to be served.

    Each body is made when it is first asked for and kept: a sample that nobody scrapes costs no joining, and two
    scrapers of one sample share it.

    Attributes:
        series: series published (a histogram counts as one).
        duplicates: samples left out because their series was already given.
        dropped: samples left out because their value is NaN, infinite or not of the family's type, because they
            have the wrong number of labels, or because their family was never declared.
        problems: what was left out in words, at most ten, for the log.
    """

    __slots__ = (
        "_blocks",
        "_openmetrics",
        "_openmetrics_gzip",
        "_text",
        "_text_gzip",
        "dropped",
        "duplicates",
        "problems",
        "series",
    )

    def __init__(
        self,
        blocks: Sequence[tuple[str, str, str]],
        *,
        series: int = 0,
        duplicates: int = 0,
        dropped: int = 0,
        problems: tuple[str, ...] = (),
    ) -> None:
        self._blocks = blocks
        self._text: bytes | None = None
        self._openmetrics: bytes | None = None
        self._text_gzip: bytes | None = None
        self._openmetrics_gzip: bytes | None = None
        self.series = series
        self.duplicates = duplicates
        self.dropped = dropped
        self.problems = problems

    def text(self) -> bytes:
        """Return the Prometheus text format 0.0.4."""
        if self._text is None:
            self._text = "".join([part for block in self._blocks for part in (block[0], block[2])]).encode()
        return self._text

    def openmetrics(self) -> bytes:
        """Return OpenMetrics text 1.0."""
        if self._openmetrics is None:
            parts = [part for block in self._blocks for part in (block[1], block[2])]
            parts.append("# EOF\n")
            self._openmetrics = "".join(parts).encode()
        return self._openmetrics

    def text_gzip(self) -> bytes:
        """Return `text` in gzip."""
        if self._text_gzip is None:
            self._text_gzip = gzip.compress(self.text(), _GZIP_LEVEL, mtime=0)
        return self._text_gzip

    def openmetrics_gzip(self) -> bytes:
        """Return `openmetrics` in gzip."""
        if self._openmetrics_gzip is None:
            self._openmetrics_gzip = gzip.compress(self.openmetrics(), _GZIP_LEVEL, mtime=0)
        return self._openmetrics_gzip


class Renderer:
    """Turns samples into an `Exposition`, one call a tick.

    Args:
        families: every family that samples may have, in the order of publication. One given twice counts once.

    Raises:
        ValueError: two families share a name, or a name does not fit its type (`_total`, `_info`, unit).
    """

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = tuple(dict.fromkeys(families))
        _check(self._families)
        self._metadata = [(_text_metadata(family), _openmetrics_metadata(family)) for family in self._families]
        self._prefixes: dict[Family, _LineCache] = {family: {} for family in self._families}

    @property
    def cached(self) -> int:
        """How many series' prefixes are remembered: those of the last render."""
        return sum(map(len, self._prefixes.values()))

    def render(self, samples: Iterable[Sample]) -> Exposition:
        """Render one tick's samples: families in declared order, the samples of each in the order given."""
        left_out = _LeftOut()
        work: dict[Family, _Work] = {family: (known, {}, []) for family, known in self._prefixes.items()}
        # Runs thousands of times a tick: plain numbers of a known series take the short way, all else `_unusual`.
        for sample in samples:
            family, labels, value = sample
            of_family = work.get(family)
            if of_family is None:
                left_out.drop(sample, "its family is not declared")
                continue
            known, fresh, lines = of_family
            if labels in fresh:
                left_out.duplicate(sample)
                continue
            prefix = known.get(labels)
            # NaN and the infinities are the numbers whose difference with themselves is not 0.
            if prefix.__class__ is str and value.__class__ in _NUMBERS and value - value == 0:
                fresh[labels] = prefix
                lines.append(f"{prefix}{value!r}\n")
            else:
                _unusual(sample, prefix, fresh, lines, left_out)
        self._prefixes = {family: fresh for family, (_, fresh, _) in work.items()}
        return Exposition(
            [
                (*metadata, "".join(lines))
                for metadata, (_, _, lines) in zip(self._metadata, work.values(), strict=True)
                if lines
            ],
            series=sum(map(len, self._prefixes.values())),
            duplicates=left_out.duplicates,
            dropped=left_out.dropped,
            problems=tuple(left_out.problems),
        )


def _unusual(sample: Sample, prefix: _Prefix | None, fresh: _LineCache, lines: list[str], left_out: "_LeftOut") -> None:
    """Render a new series, a histogram or a boolean; drop what is no reading."""
    family, labels, value = sample
    if prefix is None:
        prefix = _prefix(family, labels, value)
    if isinstance(prefix, str):
        if isinstance(value, HistogramValue) or value - value != 0:
            left_out.drop(sample, f"its value is {value}")
            return
        fresh[labels] = prefix
        lines.append(f"{prefix}{value + 0!r}\n")
    elif not prefix or not isinstance(value, HistogramValue):
        left_out.drop(sample, "its labels or value do not fit its family")
    elif value.sum - value.sum != 0 or len(value.edges) + 1 != len(value.counts):
        left_out.drop(sample, "its histogram is not complete")
    else:
        if len(prefix) != len(value.counts) + 2:
            prefix = _histogram_prefixes(family, labels, value.edges)
        fresh[labels] = prefix
        lines.append(_histogram_lines(prefix, value))


class _LeftOut:
    def __init__(self) -> None:
        self.duplicates = 0
        self.dropped = 0
        self.problems: list[str] = []

    def drop(self, sample: Sample, why: str) -> None:
        self.dropped += 1
        self._note(sample, why)

    def duplicate(self, sample: Sample) -> None:
        self.duplicates += 1
        self._note(sample, "it was already given")

    def _note(self, sample: Sample, why: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(f"{sample.family.name}{list(sample.labels)} left out: {why}")


def _prefix(family: Family, labels: tuple[str, ...], value: float | HistogramValue) -> _Prefix:
    """Return what the series' line or lines begin with; an empty tuple if labels or value do not fit."""
    if len(labels) != len(family.labels):
        return ()
    if family.kind is not Kind.HISTOGRAM:
        return f"{family.name}{_labels(family.labels, labels)} "
    return _histogram_prefixes(family, labels, value.edges) if isinstance(value, HistogramValue) else ()


def _histogram_prefixes(family: Family, labels: tuple[str, ...], edges: tuple[float, ...]) -> tuple[str, ...]:
    bounds = [*(repr(float(edge)) for edge in edges), "+Inf"]
    names = (*family.labels, "le")
    buckets = [f"{family.name}_bucket{_labels(names, (*labels, bound))} " for bound in bounds]
    own = _labels(family.labels, labels)
    return (*buckets, f"{family.name}_count{own} ", f"{family.name}_sum{own} ")


def _histogram_lines(prefixes: tuple[str, ...], value: HistogramValue) -> str:
    parts = []
    total = 0
    for prefix, count in zip(prefixes, value.counts, strict=False):
        total += count
        parts.append(f"{prefix}{total}\n")
    parts.append(f"{prefixes[-2]}{total}\n{prefixes[-1]}{value.sum!r}\n")
    return "".join(parts)


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{','.join(pairs)}}}"


def _escape(text: str) -> str:
    # File names and the like may hold lone surrogates (bytes that are not UTF-8): they must not fail the whole page.
    text = text.encode("utf-8", "replace").decode()
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _text_metadata(family: Family) -> str:
    shown = Kind.GAUGE if family.kind in (Kind.INFO, Kind.STATESET) else family.kind
    help_text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {family.name} {help_text}\n# TYPE {family.name} {shown.value}\n"


def _openmetrics_metadata(family: Family) -> str:
    name, kind = openmetrics_name(family), family.kind
    if kind is Kind.STATESET and family.labels[-1] != family.name:
        # OpenMetrics wants a state set's label to be called like the family. Renaming it in one format alone would
        # give the same series two names, depending on who scrapes; so it is a gauge there too.
        kind = Kind.GAUGE
    lines = [f"# HELP {name} {_escape(family.help)}\n", f"# TYPE {name} {kind.value}\n"]
    if family.unit and family.kind not in (Kind.INFO, Kind.STATESET):
        lines.append(f"# UNIT {name} {family.unit}\n")
    return "".join(lines)


def openmetrics_name(family: Family) -> str:
    """Return the family's name in OpenMetrics metadata: without the suffix that its type adds."""
    if family.kind is Kind.COUNTER:
        return family.name.removesuffix("_total")
    return family.name.removesuffix("_info") if family.kind is Kind.INFO else family.name


def _check(families: tuple[Family, ...]) -> None:
    names: set[str] = set()
    for family in families:
        name = openmetrics_name(family)
        if name in names:
            raise ValueError(f"{family.name} is declared twice, or clashes with another family in OpenMetrics")
        names.add(name)
        if (family.kind is Kind.COUNTER) != family.name.endswith("_total"):
            raise ValueError(f"{family.name}: _total is for counters, and counters need it")
        if family.kind is Kind.INFO and not family.name.endswith("_info"):
            raise ValueError(f"{family.name}: an info family's name ends in _info")
        if family.kind is Kind.STATESET and not family.labels:
            raise ValueError(f"{family.name}: a state set needs a label for the state")
        if family.unit and not name.endswith(f"_{family.unit}"):
            raise ValueError(f"{family.name}: its name does not end in its unit, {family.unit}")
