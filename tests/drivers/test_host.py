"""The host around the GPUs, from a recorded /proc and /sys and a psutil that counts its calls."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from coldaisle.drivers.host import Host

TIMES = SimpleNamespace(
    user=100.0,
    nice=10.0,
    system=20.0,
    idle=900.0,
    iowait=5.0,
    irq=1.0,
    softirq=2.0,
    steal=0.5,
    guest=40.0,
    guest_nice=4.0,
)
MEMORY = SimpleNamespace(total=1000, available=700, used=0, free=400, buffers=50, cached=250)
SWAP = SimpleNamespace(total=64, used=16, sin=7, sout=9)
NIC = SimpleNamespace(
    bytes_sent=1, bytes_recv=2, packets_sent=3, packets_recv=4, errin=5, errout=6, dropin=7, dropout=8
)


class FakePsutil:
    def __init__(self):
        self.calls = Counter()
        self.broken = set()
        self.nics = ["lo", "enp1s0f0", "bond0", "ib0", "veth12", "docker0", "cali9", "nophys"]

    def _answer(self, name, value):
        self.calls[name] += 1
        if name in self.broken:
            raise RuntimeError(f"no {name}")
        return value

    def cpu_times(self):
        return self._answer("cpu", TIMES)

    def cpu_count(self):
        return 224

    def virtual_memory(self):
        return self._answer("memory", MEMORY)

    def swap_memory(self):
        return self._answer("swap", SWAP)

    def net_io_counters(self, pernic, nowrap):
        return self._answer("network", dict.fromkeys(self.nics, NIC))

    def boot_time(self):
        return self._answer("boot", 1_800_000_000.0)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path):
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    write(proc / "sys/fs/file-nr", "4352\t0\t9223372036854775807\n")
    stalls = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"
    write(proc / "pressure/cpu", stalls.format(2_500_000, 0))
    write(proc / "pressure/memory", stalls.format(1_000_000, 250_000))
    for name, kind, device, state in (
        ("lo", "772", False, "unknown"),
        ("enp1s0f0", "1", True, "up"),
        ("bond0", "1", False, "down"),
        ("ib0", "32", True, "unknown"),
        ("veth12", "1", False, "up"),
    ):
        write(sys / "class/net" / name / "type", kind + "\n")
        write(sys / "class/net" / name / "operstate", state + "\n")
        if device:
            (sys / "class/net" / name / "device").mkdir()
    (sys / "class/net/bond0/bonding").mkdir()
    return proc, sys


@pytest.fixture
def fake():
    return FakePsutil()


@pytest.fixture
def host(machine, fake):
    return Host(fake, procfs=machine[0], sysfs=machine[1], getloadavg=lambda: (1.0, 2.0, 3.0))


def test_everything_at_the_first_tick(host):
    """The first read has every part, in base units."""
    reading = host.read()
    assert reading.cpus == 224
    assert reading.load == (1.0, 2.0, 3.0)
    assert reading.memory == {
        "size": 1000,
        "available": 700,
        "used": 300,
        "free": 400,
        "buffers": 50,
        "cached": 250,
    }
    assert reading.swap == {"size": 64, "used": 16, "in": 7, "out": 9}
    assert (reading.boot_time, reading.problem) == (1_800_000_000.0, "")


def test_cpu_modes_add_up(host):
    """Guest time, which the kernel counts in user too, is taken out of it."""
    seconds = host.read().cpu_seconds
    assert (seconds["user"], seconds["guest"], seconds["nice"], seconds["guest_nice"]) == (60.0, 40.0, 6.0, 4.0)
    assert sum(seconds.values()) == 100 + 10 + 20 + 900 + 5 + 1 + 2 + 0.5


def test_only_interfaces_that_reach_the_outside(host):
    """Physical, bond and InfiniBand; no loopback, veth or bridge. A state that the driver does not know is None."""
    network = host.read().network
    assert {name: (nic.kind, nic.up) for name, nic in network.items()} == {
        "bond0": ("bond", False),
        "enp1s0f0": ("physical", True),
        "ib0": ("infiniband", None),
    }
    assert network["bond0"].counters == {
        "receive_bytes": 2,
        "transmit_bytes": 1,
        "receive_packets": 4,
        "transmit_packets": 3,
        "receive_errors": 5,
        "transmit_errors": 6,
        "receive_drops": 7,
        "transmit_drops": 8,
    }


def test_a_new_interface_is_noticed_at_once(host, fake, machine):
    """A port that comes up later is there in the next tick, one that goes is gone."""
    host.read()
    (machine[1] / "class/net/enp2s0/device").mkdir(parents=True)
    fake.nics = ["enp2s0"]
    assert set(host.read().network) == {"enp2s0"}


def test_pressure_is_seconds_and_absent_without_the_kernel(host, machine, fake):
    """Microseconds become seconds; cpu `full` means nothing for a whole host; no PSI is no fault."""
    assert host.read().pressure == {("cpu", "some"): 2.5, ("memory", "some"): 1.0, ("memory", "full"): 0.25}
    bare = Host(fake, procfs=machine[0] / "nowhere", sysfs=machine[1]).read()
    assert bare.pressure == {}
    assert "cannot read pressure" not in bare.problem


def test_no_limit_on_files_is_no_number(host, machine, fake):
    """The kernel's `no limit` is absent; a real one is told."""
    reading = host.read()
    assert (reading.open_files, reading.open_files_limit) == (4352, None)
    (machine[0] / "sys/fs/file-nr").write_text("10 0 100\n")
    assert Host(fake, procfs=machine[0], sysfs=machine[1]).read().open_files_limit == 100


def test_a_part_that_fails_is_absent_alone(host, fake):
    """One broken part is named and absent, the rest is there, and it comes back."""
    fake.broken = {"network"}
    reading = host.read()
    assert (reading.network, reading.problem) == (None, "cannot read network: no network")
    assert reading.memory is not None
    fake.broken = set()
    reading = host.read()
    assert (set(reading.network), reading.problem) == ({"bond0", "enp1s0f0", "ib0"}, "")


def test_dear_reads_are_rare_and_spread(host, fake):
    """In 300 ticks: network each tick, memory and CPU every 5, swap every 10, boot time once more."""
    host.read()
    fake.calls.clear()
    for _ in range(300):
        host.read()
    assert fake.calls == {"network": 300, "memory": 60, "cpu": 60, "swap": 30, "boot": 1}


def test_the_real_machine_can_be_read():
    """Real psutil, real /proc: no part fails and the modes of memory add up."""
    reading = Host(psutil).read()
    assert reading.problem == ""
    memory = reading.memory
    assert memory["used"] + memory["free"] + memory["buffers"] + memory["cached"] == memory["size"]
    assert reading.cpu_seconds["idle"] > 0
