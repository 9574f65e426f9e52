"""Which mounts count, and what happens to the rest when one of them hangs."""

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from coldaisle.domain.clock import FakeClock, SystemClock
from coldaisle.drivers.filesystems import (
    MAX_MOUNTS,
    Filesystems,
    FilesystemSettings,
    parse_mountinfo,
    select_mounts,
)

# Composed after the tables of a DGX (RAID for data, OS on a mirror), a Docker host and a Kubernetes node.
MOUNTINFO = rb"""22 27 0:21 / /proc rw,relatime - proc proc rw
23 27 0:22 / /sys rw,relatime - sysfs sysfs rw
24 27 0:6 / /dev rw,relatime - devtmpfs devtmpfs rw,size=12334192k
25 24 0:23 / /dev/shm rw,nosuid - tmpfs tmpfs rw
26 24 0:24 / /dev/pts rw,relatime - devpts devpts rw
27 1 9:0 / / rw,relatime shared:1 - ext4 /dev/md0 rw,errors=remount-ro
28 27 259:1 / /boot/efi rw,relatime - vfat /dev/nvme0n1p1 rw
29 27 9:1 / /raid rw,relatime - ext4 /dev/md1 rw
30 27 9:1 /docker /srv/docker-bind rw,relatime - ext4 /dev/md1 rw
31 27 259:9 / /var/lib/docker rw,relatime - xfs /dev/nvme9n1 rw
32 31 0:40 / /var/lib/docker/overlay2/af0c/merged rw - overlay overlay rw,lowerdir=x
33 31 0:41 / /var/lib/docker/containers/af0c/mounts/shm rw - tmpfs shm rw
34 27 7:1 / /snap/core20/1 ro - squashfs /dev/loop1 ro
35 27 0:50 / /home rw,relatime - nfs4 filer:/home rw,vers=4.2
36 27 0:51 / /scratch\040fast rw,relatime - lustre 10.0.0.1@o2ib:/fs rw
37 27 0:52 / /mnt/backup ro,relatime - cifs //nas/backup rw
38 27 0:53 / /run rw - tmpfs tmpfs rw
39 38 0:54 / /run/user/1000 rw - tmpfs tmpfs rw
40 27 0:55 / /var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/t rw - tmpfs tmpfs rw
41 27 0:56 / /gpfs rw - gpfs fs1 rw
42 27 0:57 / /data rw - fuse.weka weka rw
43 27 0:58 / /misc rw - autofs /etc/auto.misc rw
44 27 0:59 / /net/\377 rw - nfs filer:/raw rw
45 27 9:2 / /mnt/old rw - ext4 /dev/md2 rw
46 27 9:3 / /mnt/old rw - ext4 /dev/md3 ro
47 27 9:9 / /cut
"""
RESULT = os.statvfs_result((4096, 4096, 1000, 400, 300, 5000, 4000, 4000, 0, 255))


def eventually(condition, what="condition", deadline=10.0):
    """Poll until `condition()` holds; fail after `deadline` seconds."""
    end = time.monotonic() + deadline
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, f"{what} did not come true within {deadline} s"
        pause.wait(0.002)


class Disks:
    """A statvfs whose mounts hang or fail on demand, and that counts the calls."""

    def __init__(self):
        self.hanging: dict[bytes, threading.Event] = {}
        self.entered: dict[bytes, int] = {}
        self.failing: dict[bytes, Exception] = {}
        self.results: dict[bytes, os.statvfs_result] = {}

    def hang(self, path: bytes) -> threading.Event:
        self.hanging[path] = threading.Event()
        return self.hanging[path]

    def __call__(self, path: bytes) -> os.statvfs_result:
        self.entered[path] = self.entered.get(path, 0) + 1
        if path in self.hanging:
            self.hanging[path].wait(30)
        if path in self.failing:
            raise self.failing[path]
        return self.results.get(path, RESULT)


class Machine:
    """Filesystems over a mount table in a temporary directory, a fake clock and `Disks`."""

    def __init__(self, root: Path):
        self.table = root / "self/mountinfo"
        self.table.parent.mkdir()
        self.clock = FakeClock()
        self.disks = Disks()
        self.filesystems = Filesystems(self.clock, procfs=root, statvfs=self.disks)

    def mount(self, *lines: str) -> None:
        self.table.write_text("".join(f"{line}\n" for line in lines))

    def read(self):
        return {reading.mountpoint: reading for reading in self.filesystems.read(self.clock.monotonic())}

    def ready(self) -> bool:
        self.read()
        return self.filesystems.ready(self.clock.monotonic())

    def start(self) -> None:
        self.filesystems.start()
        eventually(self.ready, "readiness")

    def tick(self, seconds: float = 1.0) -> None:
        """Move the clock and let the round of this tick run wherever nothing hangs."""
        self.clock.advance(seconds)
        counts = dict(self.disks.entered)
        self.read()
        free = [path for path in counts if path not in self.disks.hanging]
        eventually(lambda: all(self.disks.entered[path] > counts[path] for path in free), "round")
        eventually(lambda: not any(w.asking and p not in self.disks.hanging for p, w in self._watched()), "answers")

    def _watched(self):
        return [(mount.path, watched) for mount, watched in self.filesystems._watched.items()]


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    for event in machine.disks.hanging.values():
        event.set()
    machine.filesystems.stop()


ROOT = "27 1 9:0 / / rw - ext4 /dev/md0 rw"
RAID = "29 27 9:1 / /raid rw - ext4 /dev/md1 rw"
HOME = "35 27 0:50 / /home rw - nfs4 filer:/home rw"


def test_only_mounts_that_matter_are_selected():
    """Pseudo filesystems, container layers, binds, snaps and hidden mounts are left out; own disks stay."""
    selected = select_mounts(parse_mountinfo(MOUNTINFO))
    assert [(mount.path, mount.device, mount.type, mount.network, mount.read_only) for mount in selected] == [
        (b"/", "/dev/md0", "ext4", False, False),
        (b"/boot/efi", "/dev/nvme0n1p1", "vfat", False, False),
        (b"/data", "weka", "fuse.weka", True, False),
        (b"/dev/shm", "tmpfs", "tmpfs", False, False),
        (b"/gpfs", "fs1", "gpfs", True, False),
        (b"/home", "filer:/home", "nfs4", True, False),
        (b"/mnt/backup", "//nas/backup", "cifs", True, True),
        (b"/mnt/old", "/dev/md3", "ext4", False, True),
        (b"/net/\xff", "filer:/raw", "nfs", True, False),
        (b"/raid", "/dev/md1", "ext4", False, False),
        (b"/run", "tmpfs", "tmpfs", False, False),
        (b"/scratch fast", "10.0.0.1@o2ib:/fs", "lustre", True, False),
        (b"/var/lib/docker", "/dev/nvme9n1", "xfs", False, False),
    ]


def test_operators_exclude_by_pattern():
    """Shell patterns on mount points and on types take mounts out."""
    settings = FilesystemSettings(exclude_mountpoints=("/mnt/*", "/boot/*"), exclude_types=("tmpfs", "nfs*", "fuse.*"))
    paths = [mount.path for mount in select_mounts(parse_mountinfo(MOUNTINFO), settings)]
    assert paths == [b"/", b"/gpfs", b"/raid", b"/scratch fast", b"/var/lib/docker"]


def test_values_are_bytes_and_inodes(machine):
    """Blocks become bytes; available is what an unprivileged process gets; the page's view says the same."""
    machine.mount(ROOT)
    machine.start()
    reading = machine.read()["/"]
    assert reading.up is True
    assert (reading.size, reading.available, reading.used) == (4096_000, 300 * 4096, 600 * 4096)
    assert (reading.inodes, reading.inodes_free, reading.read_only) == (5000, 4000, False)
    assert reading.view() == ("/", "/dev/md0", "ext4", 4096_000, 300 * 4096, False, "")


def test_what_a_filesystem_does_not_count_is_absent(machine):
    """No blocks in all, no inodes in all, or more free than there are: absent, never zero."""
    machine.disks.results[b"/"] = os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, os.ST_RDONLY, 255))
    machine.disks.results[b"/raid"] = os.statvfs_result((4096, 4096, 10, 11, 9, 3, 9, 9, 0, 255))
    machine.mount(ROOT, RAID)
    machine.start()
    for reading in machine.read().values():
        assert (reading.up, reading.size, reading.used, reading.inodes) == (True, None, None, None)
    assert machine.read()["/"].read_only, "the kernel made it read-only after an error: statvfs knows at once"


def test_a_hung_network_mount_stops_nothing_else(machine):
    """The others go on every tick; the hung one is down after its deadline, empty after three intervals."""
    machine.mount(ROOT, HOME)
    machine.start()
    machine.disks.hang(b"/home")
    entered = machine.disks.entered[b"/home"]
    machine.tick()
    eventually(lambda: machine.disks.entered[b"/home"] > entered, "hang")
    machine.tick(1.5)
    reading = machine.read()["/home"]
    assert (reading.up, reading.size, reading.problem) == (True, 4096_000, "")
    machine.tick()
    reading = machine.read()["/home"]
    assert reading.up is False
    assert reading.problem == "statvfs hangs since 2027-01-15 08:00:01 UTC"
    assert reading.size is None
    calls = machine.disks.entered[b"/"]
    for _ in range(20):
        machine.tick()
    assert machine.disks.entered[b"/"] == calls + 20
    assert machine.disks.entered[b"/home"] == entered + 1, "a call that hangs is not repeated"
    assert machine.read()["/"].up is True


def test_a_mount_that_comes_back_is_used_again(machine):
    """Once the server answers, values return without a restart."""
    machine.mount(ROOT, HOME)
    server = machine.disks.hang(b"/home")
    machine.filesystems.start()
    eventually(lambda: machine.read() and machine.disks.entered.get(b"/home"), "hang")
    assert not machine.ready()
    machine.clock.advance(3)
    assert machine.ready(), "a missed deadline is an answer too"
    assert machine.read()["/home"].up is False
    del machine.disks.hanging[b"/home"]
    server.set()
    eventually(lambda: machine.read()["/home"].up, "recovery")
    assert machine.read()["/home"].problem == ""


def test_a_hung_local_disk_keeps_its_thread_and_the_rest_get_another(machine):
    """A dying disk blocks the shared thread: the other local mounts are sampled again after the deadline."""
    machine.mount(ROOT, RAID)
    machine.start()
    machine.disks.hang(b"/")
    entered, raid = machine.disks.entered[b"/"], machine.disks.entered[b"/raid"]
    machine.clock.advance(1)
    machine.read()
    eventually(lambda: machine.disks.entered[b"/"] > entered, "hang")
    machine.clock.advance(2.5)
    machine.read()
    eventually(lambda: machine.disks.entered[b"/raid"] > raid, "the rest")
    machine.tick()
    readings = machine.read()
    assert (readings["/"].up, readings["/"].size) == (False, None)
    assert (readings["/raid"].up, readings["/raid"].size) == (True, 4096_000)


def test_remounting_a_hung_server_piles_up_no_threads(machine):
    """However often the place is mounted anew while its thread is stuck, there is one thread for it."""
    machine.mount(ROOT, HOME)
    machine.start()
    machine.disks.hang(b"/home")
    machine.tick()
    eventually(lambda: machine.disks.entered[b"/home"] == 2, "hang")
    before = threading.active_count()
    for number in range(5):
        machine.mount(ROOT, f"{100 + number} 27 0:{60 + number} / /home rw - nfs4 filer:/home rw")
        machine.tick(10)
        eventually(lambda: any(m.id == 100 + number for m in machine.filesystems._found), "the new table")  # noqa: B023
        machine.tick()
    assert threading.active_count() == before
    assert machine.disks.entered[b"/home"] == 2
    reading = machine.read()["/home"]
    assert reading.up is False
    assert reading.problem.startswith("statvfs hangs since")


def test_failures_are_absence_with_a_reason(machine):
    """An error of statvfs: down, no values at once, the system's own words."""
    machine.mount(ROOT, HOME)
    machine.start()
    machine.disks.failing[b"/home"] = OSError(116, "Stale file handle")
    machine.disks.failing[b"/"] = RuntimeError("odd")
    machine.tick()
    readings = machine.read()
    assert (readings["/home"].up, readings["/home"].size) == (False, None)
    assert readings["/home"].problem == "statvfs failed: Stale file handle"
    assert readings["/"].problem == "statvfs failed: RuntimeError: odd"


def test_a_users_private_mount_is_no_fault(machine):
    """FUSE lets only its owner in: neither up nor down, no problem. On a disk a refusal is one."""
    machine.mount(ROOT, "50 27 0:60 / /home/ann/far rw - fuse.sshfs ann@far: rw")
    machine.disks.failing[b"/home/ann/far"] = machine.disks.failing[b"/"] = PermissionError(13, "Permission denied")
    machine.start()
    readings = machine.read()
    assert (readings["/home/ann/far"].up, readings["/home/ann/far"].problem) == (None, "")
    assert (readings["/"].up, readings["/"].problem) == (False, "statvfs failed: Permission denied")


def test_the_table_is_read_again_within_ten_seconds(machine):
    """New mounts appear and gone ones vanish also where the kernel announces nothing (a recorded table)."""
    machine.mount(ROOT, HOME)
    machine.start()
    machine.mount(ROOT, RAID)
    machine.tick(9)
    assert set(machine.read()) == {"/", "/home"}
    machine.tick(1)
    eventually(lambda: set(machine.read()) == {"/", "/raid"}, "the new table")


def test_settings_change_while_it_runs(machine):
    """An exclusion counts from the next round."""
    machine.mount(ROOT, HOME)
    machine.start()
    machine.filesystems.reconfigure(FilesystemSettings(exclude_mountpoints=("/home",)))
    eventually(lambda: set(machine.read()) == {"/"}, "the exclusion")


def test_hundreds_of_mounts_are_bounded(machine):
    """A login node's automounted homes do not cost a thread each; what is left out is said."""
    machine.mount(ROOT, *(f"{n} 27 0:{n} / /home/u{n} rw - nfs filer:/u{n} rw" for n in range(100, 400)))
    machine.start()
    assert len(machine.read()) == MAX_MOUNTS + 1
    assert machine.filesystems.problem == "236 mounts are not watched, 64 of a kind are"


def test_no_table_is_a_problem_and_no_crash(machine):
    """Without /proc there are no filesystems, and a sentence why."""
    machine.filesystems.start()
    eventually(lambda: machine.filesystems.problem, "problem")
    assert machine.read() == {}
    assert machine.filesystems.problem.endswith("self/mountinfo: No such file or directory")


def test_stop_does_not_wait_for_a_hung_call(machine):
    """Stop returns while a call still hangs; that thread ends when the call does."""
    machine.mount(ROOT, HOME)
    server = machine.disks.hang(b"/home")
    machine.filesystems.start()
    eventually(lambda: machine.read() and machine.disks.entered.get(b"/home"), "hang")
    stuck = machine.filesystems._lanes[b"/home"].thread
    machine.filesystems.stop()
    assert stuck.is_alive()
    server.set()
    eventually(lambda: not stuck.is_alive(), "end of the thread")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_real_tmpfs_fills_up(tmp_path):
    """A real mount is noticed by the kernel's notification; its bytes, inodes and remount to read-only are told."""
    target = tmp_path / "small disk"
    target.mkdir()
    filesystems = Filesystems(SystemClock(), settings=FilesystemSettings(interval=0.01))
    filesystems.start()

    def reading():
        return next((r for r in filesystems.read(time.monotonic()) if r.mountpoint == str(target)), None)

    try:
        eventually(lambda: filesystems.read(time.monotonic()), "first list")
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1M,nr_inodes=20", "coldaisle-test", target], check=False
        )
        if done.returncode:
            pytest.skip("this container may not mount")
        try:
            # Well below the ten seconds after which the table is read anyway.
            eventually(lambda: (r := reading()) and r.size == 1 << 20, "the mount", 5)
            assert (reading().device, reading().type, reading().inodes) == ("coldaisle-test", "tmpfs", 20)
            (target / "full").write_bytes(bytes(1 << 20))
            eventually(lambda: reading().available == 0, "the full disk")
            assert reading().used == 1 << 20
            subprocess.run(["mount", "-o", "remount,ro", target], check=True)
            eventually(lambda: reading().read_only, "read-only")
        finally:
            subprocess.run(["umount", "--lazy", target], check=True)
        eventually(lambda: reading() is None, "the unmount", 5)
    finally:
        filesystems.stop()
