"""Xids and other kernel messages as counters, and how the reader that finds them does."""

from collections.abc import Callable, Sequence
from typing import Protocol

from coldaisle.collectors.boundary import Result
from coldaisle.collectors.xid_tally import Key, XidTally
from coldaisle.domain.clock import Clock
from coldaisle.domain.events import Event, EventStream
from coldaisle.domain.gpu import GpuIdentity
from coldaisle.domain.readings import Source
from coldaisle.metrics.families import Family, Kind, Sample
from coldaisle.metrics.kernel_kinds import KINDS
from coldaisle.metrics.xids import ZERO_INITIALISED

XID_TOTAL = Family(
    "dgx_gpu_xid_total",
    Kind.COUNTER,
    "Xid errors of a GPU that the agent has seen since its start (at its first start: since boot), from the kernel "
    "log and NVML events, each counted once; gpu and uuid are empty for a GPU that NVML has not shown.",
    ("gpu", "uuid", "xid"),
)
XID_LAST = Family(
    "dgx_gpu_xid_last_timestamp_seconds",
    Kind.GAUGE,
    "Unix time of the last occurrence of an Xid; absent if there was none.",
    ("gpu", "uuid", "xid"),
    "seconds",
)
XID_DISAGREEMENTS = Family(
    "dgx_gpu_xid_disagreements_total",
    Kind.COUNTER,
    "Xids that only this source (kmsg or nvml) reported within five seconds.",
    ("source",),
)
MESSAGES = Family(
    "dgx_kernel_messages_total",
    Kind.COUNTER,
    "Kernel-log lines that concern GPUs, memory, filesystems and disks, by kind, from the kernel log.",
    ("kind",),
)
READER_LAG = Family(
    "coldaisle_reader_lag_seconds",
    Kind.GAUGE,
    "How long the reader has been behind a source, 0 when it has read all there is.",
    ("source",),
    "seconds",
)
READER_LINES = Family(
    "coldaisle_reader_lines_total", Kind.COUNTER, "Records that the reader took from a source.", ("source",)
)
READER_LOST = Family(
    "coldaisle_reader_lost_records_total",
    Kind.COUNTER,
    "Records that a source overwrote before they could be read, from gaps in its numbering.",
    ("source",),
)
READER_SUPPRESSED = Family(
    "coldaisle_reader_suppressed_records_total",
    Kind.COUNTER,
    "Messages that the reader folded into another's count or dropped to limit its rate.",
    ("source",),
)
READER_MALFORMED = Family(
    "coldaisle_reader_malformed_records_total",
    Kind.COUNTER,
    "Records of a source that are not in the kernel log's format.",
    ("source",),
)
READER_RESTARTS = Family(
    "coldaisle_reader_restarts_total", Kind.COUNTER, "Times that the reader process had to be started again."
)

_ZERO_CODES = tuple(str(code) for code in ZERO_INITIALISED)
_HISTORY = 10.0
"""Seconds after which a message is history: NVML cannot have reported it to us."""


class SourceReport(Protocol):
    """One source of the reader, as the driver keeps it."""

    @property
    def source(self) -> str: ...  # noqa: D102  the names are the metrics' own
    @property
    def lag(self) -> float: ...  # noqa: D102
    @property
    def lines(self) -> int: ...  # noqa: D102
    @property
    def lost(self) -> int: ...  # noqa: D102
    @property
    def suppressed(self) -> int: ...  # noqa: D102
    @property
    def malformed(self) -> int: ...  # noqa: D102


class ReaderReport(Protocol):
    """The reader, as the driver keeps it."""

    @property
    def sources(self) -> Sequence[SourceReport]: ...  # noqa: D102
    @property
    def restarts(self) -> int: ...  # noqa: D102


class EventsCollector:
    """Counts what passes through the event stream.

    Args:
        events: the stream to listen to.
        gpus: the GPUs known now; one that was known keeps its series.
        reader: the reader's status, None where there is no reader.
        clock: monotonic time for matching, wall time to tell history.
    """

    name = "events"
    families = (
        XID_TOTAL,
        XID_LAST,
        XID_DISAGREEMENTS,
        MESSAGES,
        READER_LAG,
        READER_LINES,
        READER_LOST,
        READER_SUPPRESSED,
        READER_MALFORMED,
        READER_RESTARTS,
    )

    def __init__(
        self,
        events: EventStream,
        gpus: Callable[[], Sequence[GpuIdentity]],
        reader: Callable[[], ReaderReport | None],
        clock: Clock,
    ) -> None:
        self._gpus = gpus
        self._reader = reader
        self._clock = clock
        self._tally = XidTally()
        self._messages = dict.fromkeys(KINDS, 0)
        self._known: dict[str, GpuIdentity] = {}
        self._labels: dict[Key, tuple[str, str, str]] = {}
        self._seen_gpus: tuple[GpuIdentity, ...] = ()
        events.listen(self.on_event)

    def on_event(self, event: Event) -> None:
        """Count an event if it is an Xid or a kernel message."""
        facts = dict(event.facts)
        count = _positive(facts.get("count", "1"))
        if event.source == Source.KMSG.value and (kind := facts.get("message", "")) in self._messages:
            self._messages[kind] += count
        if event.kind != "xid":
            return
        code = event.name.removeprefix("xid_")
        if not (code.isascii() and code.isdigit()):
            return
        self._learn()
        gpu = event.uuid or self._uuid_of(facts.get("bdf", ""))
        live = self._clock.wall() - event.time < _HISTORY
        self._tally.report(Key(gpu, code), event.source, event.time, self._clock.monotonic(), count, judged=live)

    def collect(self, now: float) -> Result:
        """Return the counters; `now` is monotonic seconds."""
        self._learn()
        self._tally.expire(now)
        samples = self._xid_samples()
        samples += [
            Sample(XID_DISAGREEMENTS, (source,), self._tally.disagreements.get(source, 0))
            for source in (Source.KMSG.value, Source.NVML.value)
        ]
        samples += [Sample(MESSAGES, (kind,), count) for kind, count in self._messages.items()]
        return Result(samples + self._reader_samples())

    def _xid_samples(self) -> list[Sample]:
        # Several bus ids without a known GPU share the series with empty labels.
        counts: dict[tuple[str, str, str], int] = {}
        for key, count in self._tally.counts.items():
            label = self._label(key)
            counts[label] = counts.get(label, 0) + count
        last: dict[tuple[str, str, str], float] = {}
        for key, when in self._tally.last.items():
            label = self._label(key)
            last[label] = max(when, last.get(label, 0.0))
        return [
            *(Sample(XID_TOTAL, label, count) for label, count in counts.items()),
            *(Sample(XID_LAST, label, when) for label, when in last.items()),
        ]

    def _reader_samples(self) -> list[Sample]:
        reader = self._reader()
        if reader is None:
            return []
        samples = [Sample(READER_RESTARTS, (), reader.restarts)]
        for source in reader.sources:
            label = (source.source,)
            samples += [
                Sample(READER_LAG, label, source.lag),
                Sample(READER_LINES, label, source.lines),
                Sample(READER_LOST, label, source.lost),
                Sample(READER_SUPPRESSED, label, source.suppressed),
                Sample(READER_MALFORMED, label, source.malformed),
            ]
        return samples

    def _learn(self) -> None:
        """Take note of new GPUs: series at zero, and what was counted under their bus id before."""
        gpus = tuple(self._gpus())
        if gpus == self._seen_gpus:
            return
        self._seen_gpus = gpus
        for gpu in gpus:
            if self._known.get(gpu.uuid) == gpu:
                continue
            self._known[gpu.uuid] = gpu
            self._labels.clear()
            self._tally.zero(gpu.uuid, _ZERO_CODES)
            if gpu.pci_bus_id:
                self._tally.rename(gpu.pci_bus_id, gpu.uuid)

    def _uuid_of(self, bdf: str) -> str:
        return next((gpu.uuid for gpu in self._known.values() if bdf and gpu.pci_bus_id == bdf), bdf)

    def _label(self, key: Key) -> tuple[str, str, str]:
        if (label := self._labels.get(key)) is None:
            gpu = self._known.get(key.gpu)
            label = (str(gpu.index), gpu.uuid, key.xid) if gpu else ("", "", key.xid)
            self._labels[key] = label
        return label


def _positive(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 1
