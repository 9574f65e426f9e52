"""From our processes to samples."""

from typing import NamedTuple

from coldaisle import __version__
from coldaisle.collectors.processes import ProcessCollector


class Reading(NamedTuple):
    cpu_seconds: float
    resident: int
    threads: int
    start_time: float | None = None
    open_files: int | None = None
    proportional: int | None = None


def test_golden_samples():
    """Every family of a process that can be read; only what is known of one that cannot."""
    readings = {"main": Reading(3.0, 4096, 7, 1_800_000_005.0, 5, 1024), "reader": Reading(1.0, 2048, 2)}
    collector = ProcessCollector(lambda now: readings, version="1.2.3", python="3.11.2")
    assert [(s.family.name, s.labels, s.value) for s in collector.collect(0.0).samples] == [
        ("coldaisle_build_info", ("1.2.3", "3.11.2"), 1),
        ("coldaisle_process_cpu_seconds_total", ("main",), 3.0),
        ("coldaisle_process_resident_memory_bytes", ("main",), 4096),
        ("coldaisle_process_proportional_memory_bytes", ("main",), 1024),
        ("coldaisle_process_threads", ("main",), 7),
        ("coldaisle_process_open_fds", ("main",), 5),
        ("coldaisle_process_start_time_seconds", ("main",), 1_800_000_005.0),
        ("coldaisle_process_cpu_seconds_total", ("reader",), 1.0),
        ("coldaisle_process_resident_memory_bytes", ("reader",), 2048),
        ("coldaisle_process_threads", ("reader",), 2),
    ]


def test_build_info_is_this_build():
    """Version and Python are those that run, also while no process can be read."""
    (sample,) = ProcessCollector(lambda now: {}).collect(0.0).samples
    assert sample.labels[0] == __version__
    assert sample.labels[1].count(".") == 2
