"""Counting Xids once, series from the start, and the reader's own numbers."""

import pytest

from coldaisle.collectors.events import EventsCollector
from coldaisle.collectors.xid_tally import MAX_SERIES, Key, XidTally
from coldaisle.domain.clock import FakeClock
from coldaisle.domain.events import Event, EventStream, Severity
from coldaisle.domain.gpu import GpuIdentity
from coldaisle.drivers.reader_client import ReaderStatus
from coldaisle.drivers.reader_packets import parse_sources
from coldaisle.metrics.xids import CATALOGUE, ZERO_INITIALISED, Action, explain

GPU0 = GpuIdentity(0, "GPU-a", pci_bus_id="00000000:05:00.0")
GPU1 = GpuIdentity(1, "GPU-b", pci_bus_id="00000000:06:00.0")


class Bench:
    def __init__(self):
        self.clock = FakeClock()
        self.stream = EventStream()
        self.gpus = [GPU0, GPU1]
        self.reader = None
        self.collector = EventsCollector(self.stream, lambda: self.gpus, lambda: self.reader, self.clock)

    def xid(self, code, source="kmsg", gpu=GPU0, *, count=1, age=0.0, uuid=True):
        facts = (("message", "xid"), ("count", str(count)), ("bdf", gpu.pci_bus_id))
        self.stream.append(
            Event(
                self.clock.wall() - age,
                "xid",
                f"xid_{code}",
                Severity.CRITICAL,
                "",
                source,
                gpu.uuid if uuid else None,
                facts if source == "kmsg" else (),
            )
        )

    def values(self, name):
        result = self.collector.collect(self.clock.monotonic())
        found = [sample for sample in result.samples if sample.family.name == name]
        assert len({sample.labels for sample in found}) == len(found), "no series twice"
        return {sample.labels: sample.value for sample in found}


@pytest.fixture
def bench():
    return Bench()


def test_critical_codes_are_at_zero_from_the_start(bench):
    """Alerts need the step from 0, so every known GPU has the important codes before anything happens."""
    totals = bench.values("dgx_gpu_xid_total")
    assert totals["0", "GPU-a", "79"] == 0
    assert len(totals) == 2 * len(ZERO_INITIALISED)
    assert bench.values("dgx_gpu_xid_last_timestamp_seconds") == {}


@pytest.mark.parametrize(("first", "second"), [("kmsg", "nvml"), ("nvml", "kmsg")])
def test_two_sources_within_five_seconds_are_one(bench, first, second):
    """Kernel log and NVML report the same Xid: counted once, no disagreement."""
    bench.xid(79, first)
    bench.clock.advance(4.0)
    bench.xid(79, second)
    bench.clock.advance(20.0)
    assert bench.values("dgx_gpu_xid_total")["0", "GPU-a", "79"] == 1
    assert set(bench.values("dgx_gpu_xid_disagreements_total").values()) == {0}


def test_one_source_alone_is_a_disagreement(bench):
    """An Xid that only the kernel log shows is counted once and noted after the window."""
    bench.xid(119)
    assert bench.values("dgx_gpu_xid_disagreements_total")[("kmsg",)] == 0
    bench.clock.advance(5.1)
    assert bench.values("dgx_gpu_xid_disagreements_total") == {("kmsg",): 1, ("nvml",): 0}
    assert bench.values("dgx_gpu_xid_total")["0", "GPU-a", "119"] == 1


def test_repeats_and_distant_reports_are_counted_each(bench):
    """A repeat of the same code counts again, and so does the other source after the window."""
    bench.xid(31, count=3)
    bench.xid(31, "nvml")
    bench.clock.advance(6.0)
    bench.xid(31, "nvml")
    assert bench.values("dgx_gpu_xid_total")["0", "GPU-a", "31"] == 4


def test_late_source_is_matched_by_the_time_it_tells(bench):
    """A reader that was restarted reports half a minute late: the Xid that NVML reported then is not counted again."""
    bench.xid(79, "nvml")
    bench.clock.advance(30.0)
    bench.xid(79, age=30.0)
    bench.xid(79, age=1.0)
    assert bench.values("dgx_gpu_xid_total")["0", "GPU-a", "79"] == 2


def test_codes_and_gpus_are_kept_apart(bench):
    """Only the same code of the same GPU is the same Xid."""
    bench.xid(79)
    bench.xid(79, "nvml", GPU1)
    bench.xid(48, "nvml")
    totals = bench.values("dgx_gpu_xid_total")
    assert [totals["0", "GPU-a", "79"], totals["1", "GPU-b", "79"], totals["0", "GPU-a", "48"]] == [1, 1, 1]


def test_history_is_counted_and_never_a_disagreement(bench):
    """Records from before the agent's start keep their time; NVML cannot have reported them."""
    bench.xid(79, age=3600.0)
    bench.clock.advance(10.0)
    assert bench.values("dgx_gpu_xid_disagreements_total")[("kmsg",)] == 0
    last = bench.values("dgx_gpu_xid_last_timestamp_seconds")["0", "GPU-a", "79"]
    assert last == bench.clock.wall() - 3610.0


def test_unknown_gpus_share_a_series_until_they_are_known(bench):
    """A GPU that NVML has not shown has no labels; its counts move to it when it appears."""
    bench.gpus = []
    bench.xid(79, uuid=False)
    bench.xid(79, gpu=GPU1, uuid=False)
    assert bench.values("dgx_gpu_xid_total") == {("", "", "79"): 2}
    bench.gpus = [GPU0]
    totals = bench.values("dgx_gpu_xid_total")
    assert (totals["0", "GPU-a", "79"], totals["", "", "79"]) == (1, 1)


def test_vanished_gpu_keeps_its_series(bench):
    """The GPU that fell off the bus is the one whose Xid matters."""
    bench.xid(79)
    bench.values("dgx_gpu_xid_total")
    bench.gpus = [GPU1]
    assert bench.values("dgx_gpu_xid_total")["0", "GPU-a", "79"] == 1


def test_kernel_messages_are_counted_by_kind(bench):
    """Each kind has a series from the start; folded lines count in full; NVML's Xids are no log lines."""
    bench.xid(79, count=5)
    bench.xid(79, "nvml")
    facts = (("message", "oom_kill"),)
    bench.stream.append(Event(0.0, "log", "oom_kill", Severity.WARNING, "", "kmsg", None, facts))
    messages = bench.values("dgx_kernel_messages_total")
    assert (messages[("xid",)], messages[("oom_kill",)], messages[("nouveau",)]) == (5, 1, 0)


def test_reader_numbers_are_published(bench):
    """What the driver keeps of the reader appears by source; without a reader there is nothing."""
    assert bench.values("coldaisle_reader_restarts_total") == {}
    bench.reader = ReaderStatus()
    bench.reader.restarts = 2
    entry = {"source": "kernel-log", "state": "ok", "lines": 9, "lost": 1, "lag": 0.5, "suppressed": 3}
    bench.reader.sources = parse_sources({"sources": [entry]}, ())
    assert bench.values("coldaisle_reader_restarts_total") == {(): 2}
    assert bench.values("coldaisle_reader_lost_records_total") == {("kernel-log",): 1}
    assert bench.values("coldaisle_reader_lag_seconds") == {("kernel-log",): 0.5}


def test_families_cover_what_is_collected(bench):
    """A collector may emit only what it declares."""
    bench.reader = ReaderStatus()
    bench.xid(79)
    families = {sample.family for sample in bench.collector.collect(0.0).samples}
    assert families <= set(EventsCollector.families)


def test_series_are_bounded():
    """Invented codes end up in one series."""
    tally = XidTally()
    for code in range(2 * MAX_SERIES):
        tally.report(Key("GPU-a", str(code)), "kmsg", 1.0, 1.0)
    assert len(tally.counts) <= MAX_SERIES + 1
    assert sum(tally.counts.values()) == 2 * MAX_SERIES


def test_catalogue_is_whole():
    """Entries stand under their own code with a meaning; zero-initialised codes are known; others go to support."""
    assert all(code == xid.code and xid.meaning and xid.remedy for code, xid in CATALOGUE.items())
    assert all(code in CATALOGUE for code in ZERO_INITIALISED)
    assert explain(99_999).action is Action.CONTACT_SUPPORT
    assert explain(79).severity is Severity.CRITICAL
