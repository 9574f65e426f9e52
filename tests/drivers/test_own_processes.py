"""What our processes cost, from a recorded /proc."""

import os
from pathlib import Path

import pytest

from coldaisle.drivers.own_processes import OwnProcesses, ProcessReading

STAT = "{pid} (cold ai) S le) {state} 1 1 1 0 -1 4194560 10 0 0 0 {utime} 50 0 0 20 0 7 0 {start} 9999 300 1 2 3 4 5\n"


class Proc:
    def __init__(self, root: Path):
        self.root = root
        (root / "stat").write_text("cpu 1 2 3\nbtime 1800000000\n")
        self.pids: dict[str, int | None] = {}
        self.processes = OwnProcesses(lambda: self.pids, procfs=root, ticks_per_second=100, page_size=4096)

    def process(self, pid: int, *, utime: int = 250, pss: int = 1000, start: int = 500, state: str = "S") -> None:
        directory = self.root / str(pid)
        (directory / "fd").mkdir(parents=True, exist_ok=True)
        for number in range(5):
            (directory / "fd" / str(number)).touch()
        (directory / "stat").write_text(STAT.format(pid=pid, utime=utime, start=start, state=state))
        (directory / "smaps_rollup").write_text(f"00400000-7ffd [rollup]\nRss:  1200 kB\nPss:  {pss} kB\n")


@pytest.fixture
def proc(tmp_path):
    return Proc(tmp_path)


def test_each_process_in_base_units(proc):
    """Ticks become seconds, pages and kB bytes, the start Unix time; a name with parentheses does no harm."""
    proc.process(7)
    proc.pids = {"main": 7, "nvml": None}
    assert proc.processes.read(0.0) == {"main": ProcessReading(3.0, 300 * 4096, 7, 1_800_000_005.0, 5, 1000 * 1024)}


def test_a_process_that_vanished_is_missing(proc):
    """Ended, a zombie, or never there: absent, and the others stay."""
    proc.process(7)
    proc.process(8, state="Z")
    proc.pids = {"main": 7, "nvml": 8, "reader": 9}
    assert set(proc.processes.read(0.0)) == {"main"}


def test_reads_every_five_seconds_and_at_a_change(proc):
    """Between reads the last one stands; a restarted child is read at once."""
    proc.process(7)
    proc.pids = {"main": 7}
    proc.processes.read(0.0)
    proc.process(7, utime=950)
    assert proc.processes.read(4.9)["main"].cpu_seconds == 3.0
    assert proc.processes.read(5.0)["main"].cpu_seconds == 10.0
    proc.process(10)
    proc.pids = {"main": 7, "nvml": 10}
    assert set(proc.processes.read(5.1)) == {"main", "nvml"}


def test_proportional_memory_is_read_every_thirty_seconds(proc):
    """It is dear; but a new process under an old id never shows the old one's memory."""
    proc.process(7)
    proc.pids = {"main": 7}
    proc.processes.read(0.0)
    proc.process(7, pss=2000)
    assert proc.processes.read(29.0)["main"].proportional == 1000 * 1024
    assert proc.processes.read(34.0)["main"].proportional == 2000 * 1024
    proc.process(7, pss=50, start=900)
    assert proc.processes.read(39.0)["main"].proportional == 50 * 1024


def test_what_cannot_be_read_is_absent(proc):
    """Without smaps_rollup or btime the rest is still told."""
    proc.process(7)
    (proc.root / "7/smaps_rollup").unlink()
    (proc.root / "stat").unlink()
    proc.pids = {"main": 7}
    reading = proc.processes.read(0.0)["main"]
    assert (reading.proportional, reading.start_time, reading.threads) == (None, None, 7)


def test_this_process_can_be_read():
    """The real /proc agrees with what Python knows of itself."""
    reading = OwnProcesses(lambda: {"main": os.getpid()}).read(0.0)["main"]
    assert reading.cpu_seconds <= sum(os.times()[:2]) + 0.1
    assert reading.resident > 1 << 20
    assert reading.open_files > 2
