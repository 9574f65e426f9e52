"""From filesystem readings to samples and the page."""

from typing import NamedTuple

from coldaisle.collectors.filesystem import FilesystemCollector
from coldaisle.domain.node import FilesystemView


class Reading(NamedTuple):
    mountpoint: str
    device: str
    type: str
    read_only: bool = False
    up: bool | None = True
    size: int | None = None
    available: int | None = None
    used: int | None = None
    inodes: int | None = None
    inodes_free: int | None = None
    problem: str = ""

    def view(self):
        return FilesystemView(self.mountpoint, self.device, self.type, self.size, None, self.read_only, self.problem)


def lines(result):
    return [
        f"{sample.family.name}{{{','.join(f'{k}={v}' for k, v in zip(sample.family.labels, sample.labels, strict=True))}}} {sample.value}"
        for sample in result.samples
    ]


RAID = Reading("/raid", "/dev/md1", "ext4", False, True, 1000, 300, 600, 50, 40)
HUNG = Reading("/home", "filer:/home", "nfs4", True, False, problem="statvfs hangs since 2027-01-15 08:00:00 UTC")


def test_golden_samples_of_a_healthy_filesystem():
    """Every family with its labels and integers."""
    result = FilesystemCollector(lambda now: [RAID]).collect(0.0)
    assert lines(result) == [
        "dgx_filesystem_info{mountpoint=/raid,device=/dev/md1,fstype=ext4} 1",
        "dgx_filesystem_read_only{mountpoint=/raid,device=/dev/md1} 0",
        "dgx_filesystem_up{mountpoint=/raid,device=/dev/md1} 1",
        "dgx_filesystem_size_bytes{mountpoint=/raid,device=/dev/md1} 1000",
        "dgx_filesystem_available_bytes{mountpoint=/raid,device=/dev/md1} 300",
        "dgx_filesystem_used_bytes{mountpoint=/raid,device=/dev/md1} 600",
        "dgx_filesystem_inodes{mountpoint=/raid,device=/dev/md1} 50",
        "dgx_filesystem_inodes_free{mountpoint=/raid,device=/dev/md1} 40",
    ]
    assert (result.problem, result.action) == ("", "")


def test_a_hung_filesystem_is_down_and_has_no_values():
    """Up 0, no sizes, and the reason with place and server; the rest is complete."""
    result = FilesystemCollector(lambda now: [HUNG, RAID]).collect(0.0)
    assert [line for line in lines(result) if "/home" in line] == [
        "dgx_filesystem_info{mountpoint=/home,device=filer:/home,fstype=nfs4} 1",
        "dgx_filesystem_read_only{mountpoint=/home,device=filer:/home} 1",
        "dgx_filesystem_up{mountpoint=/home,device=filer:/home} 0",
    ]
    assert len([line for line in lines(result) if "/raid" in line]) == 8
    assert result.problem == "/home (filer:/home): statvfs hangs since 2027-01-15 08:00:00 UTC"
    assert "umount --lazy" in result.action


def test_nothing_is_claimed_before_the_first_answer():
    """A mount just found is neither up nor down."""
    result = FilesystemCollector(lambda now: [Reading("/", "/dev/md0", "xfs", up=None)]).collect(0.0)
    assert [sample.family.name for sample in result.samples] == ["dgx_filesystem_info", "dgx_filesystem_read_only"]


def test_an_incomplete_list_is_a_problem():
    """What the driver could not list is said."""
    result = FilesystemCollector(lambda now: [], lambda: "3 mounts are not watched").collect(0.0)
    assert (list(result.samples), result.problem, result.action) == ([], "3 mounts are not watched", "")


def test_the_page_shows_the_last_collection():
    """Views come from the same readings as the samples."""
    collector = FilesystemCollector(lambda now: [RAID, HUNG])
    assert collector.views() == ()
    collector.collect(0.0)
    assert collector.views() == (RAID.view(), HUNG.view())
