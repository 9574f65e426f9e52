"""Mounted filesystems: which ones matter, and what statvfs says of each without ever waiting for one that hangs.

The mount table is /proc/self/mountinfo and not `psutil.disk_partitions`: only mountinfo has device numbers (one disk
bound to five places is one filesystem), and the kernel wakes a poll on it when a mount comes or goes.

statvfs on a dead NFS server or a dying disk blocks for minutes and cannot be interrupted. So local mounts share one
thread, each network mount has its own, and a local mount that blocks keeps the thread it blocks while the rest get a
new one. A thread that has not come back is never asked again, so a hang costs one thread and no more. The tick starts
each round (`Filesystems.read`) and picks up what has been answered; it never waits.
"""

import os
import re
import select
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from coldaisle.domain.clock import Clock
from coldaisle.domain.node import FilesystemView

RELIST_SECONDS = 10.0
"""Longest age of the mount table where the kernel announces no change."""
MAX_MOUNTS = 64  # of a kind (local, network): a node with hundreds of automounted homes must not cost 300 threads
STALE_INTERVALS = 3

# Nothing to fill up: kernel interfaces, images that are full by nature, and layers over a filesystem counted elsewhere.
_PSEUDO = frozenset(
    (
        *("autofs", "binder", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "cpuset", "debugfs", "devpts"),
        *("devtmpfs", "efivarfs", "fusectl", "hugetlbfs", "mqueue", "nfsd", "nsfs", "pipefs", "proc", "pstore"),
        *("ramfs", "resctrl", "rootfs", "rpc_pipefs", "securityfs", "selinuxfs", "sockfs", "sysfs", "tracefs"),
        *("aufs", "ecryptfs", "erofs", "iso9660", "overlay", "squashfs", "udf", "fuse.fuse-overlayfs"),
        *("fuse.gvfsd-fuse", "fuse.lxcfs", "fuse.portal", "fuse.snapfuse", "fuse.squashfuse", "fuse.vmware-vmblock"),
    )
)
_NETWORK = re.compile(
    r"(nfs\d?|cifs|smb3?|smbfs|lustre|lustre_tgt|gpfs|mmfs|beegfs\w*|ceph|glusterfs|afs|9p|ocfs2|gfs2|wekafs|panfs"
    r"|pvfs2|virtiofs|fuse(\..+)?)$"
)
# What container runtimes, systemd and desktops mount for themselves. /var/lib/docker itself, or a disk mounted at
# /var/lib/docker/volumes, is no such thing and stays.
_PRIVATE = re.compile(
    r"/(proc|sys)(/|$)|/dev$|/dev/(?!shm$)|/run/.|/var/run/|/snap/|/var/snap/|/var/lib/snapd/"
    r"|/etc/(hosts|hostname|resolv\.conf)$"
    r"|.*/(docker|containers/storage)/(aufs|btrfs|containers|devicemapper|overlay2?|overlay-containers|zfs)/"
    r"|.*/containerd/.*/(rootfs|sandboxes|tmpmounts)|.*/kubelet/pods/.*/(volume-subpaths/|kubernetes\.io~"
    r"(configmap|downward-api|empty-dir|projected|secret)/)"
)
_ESCAPE = re.compile(rb"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of the mount table that matters. `path` is the mount point as the kernel knows it."""

    id: int
    device_number: str
    path: bytes
    device: str
    type: str
    read_only: bool

    @property
    def network(self) -> bool:
        """Whether a server or daemon answers for it, which may be gone."""
        return _NETWORK.match(self.type) is not None


class FilesystemSettings(NamedTuple):
    """How to sample. Seconds; the exclusions are shell patterns on mount points and types."""

    interval: float = 1.0
    deadline: float = 2.0
    exclude_mountpoints: Sequence[str] = ()
    exclude_types: Sequence[str] = ()


class FilesystemReading(NamedTuple):
    """One filesystem now. Bytes and inodes; None is absent. `up` is None before its first answer or deadline."""

    mountpoint: str
    device: str
    type: str
    read_only: bool
    up: bool | None
    size: int | None = None
    available: int | None = None
    used: int | None = None
    inodes: int | None = None
    inodes_free: int | None = None
    problem: str = ""

    def view(self) -> FilesystemView:
        """Return what the page shows of it."""
        return FilesystemView(
            self.mountpoint, self.device, self.type, self.size, self.available, self.read_only, self.problem
        )


Statvfs = Callable[[bytes], os.statvfs_result]


def parse_mountinfo(text: bytes) -> list[Mount]:
    """Return every line of a mountinfo file that can be read (proc(5)); lines cut short are left out."""
    mounts = []
    for line in text.splitlines():
        left, separator, right = line.partition(b" - ")
        head, tail = left.split(b" "), right.split(b" ")
        if not separator or len(head) < 6 or len(tail) < 3 or not head[0].isdigit():
            continue
        read_only = b"ro" in head[5].split(b",") or b"ro" in tail[2].split(b",")
        device, kind = _shown(_unescape(tail[1])), _shown(tail[0])
        mounts.append(Mount(int(head[0]), _shown(head[2]), _unescape(head[4]), device, kind, read_only))
    return mounts


def select_mounts(mounts: Iterable[Mount], settings: FilesystemSettings | None = None) -> list[Mount]:
    """Return the mounts that matter: real, reachable, wanted, and each device once, at its shortest mount point."""
    settings = settings or FilesystemSettings()
    # Of two mounts on one place only the later can be reached.
    reachable = {mount.path: mount for mount in mounts}
    by_device: dict[str, Mount] = {}
    for mount in sorted(reachable.values(), key=lambda mount: (len(mount.path), mount.path)):
        mountpoint = _shown(mount.path)
        if (
            mount.type not in _PSEUDO
            and not _PRIVATE.match(mountpoint)
            and not any(fnmatchcase(mount.type, pattern) for pattern in settings.exclude_types)
            and not any(fnmatchcase(mountpoint, pattern) for pattern in settings.exclude_mountpoints)
        ):
            by_device.setdefault(mount.device_number, mount)
    return sorted(by_device.values(), key=lambda mount: mount.path)


def _unescape(field: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: bytes((int(match[1], 8) & 0xFF,)), field)


def _shown(field: bytes) -> str:
    """Text for labels: mount points may be any bytes, an exposition must be UTF-8."""
    return field.decode("utf-8", "replace")


class _Outcome(NamedTuple):
    taken_at: float
    result: os.statvfs_result | None
    error: str = ""


class _Watched:
    """A mount and its last answer. A lane writes `asking` and `outcome`, whole objects, so no lock is needed."""

    __slots__ = ("asking", "mount", "mountpoint", "outcome")

    def __init__(self, mount: Mount) -> None:
        self.mount = mount
        self.mountpoint = _shown(mount.path)
        self.asking: tuple[float, float] | None = None
        """Monotonic and Unix seconds at which the call under way began."""
        self.outcome: _Outcome | None = None

    def late(self, now: float, deadline: float) -> bool:
        asking = self.asking
        return asking is not None and now - asking[0] > deadline

    def ask(self, statvfs: Statvfs, clock: Clock) -> None:
        self.asking = (clock.monotonic(), clock.wall())
        result, error = None, ""
        try:
            result = statvfs(self.mount.path)
        except OSError as failure:
            # A user's own FUSE mount (sshfs) shuts others out, root too: unknown, and no fault of the node.
            private = isinstance(failure, PermissionError) and self.mount.type.startswith("fuse")
            error = "" if private else f"statvfs failed: {failure.strerror or failure}"
        except Exception as failure:  # noqa: BLE001  a thread that dies here would look like a mount that hangs
            error = f"statvfs failed: {type(failure).__name__}: {failure}"
        self.outcome = _Outcome(clock.monotonic(), result, error)
        self.asking = None

    def reading(self, now: float, settings: FilesystemSettings) -> FilesystemReading:
        """Return what is known now; values older than three intervals are absent."""
        mount, outcome = self.mount, self.outcome
        problem, up, result = "", None, None
        if outcome is not None:
            result, problem = outcome.result, outcome.error
            up = False if problem else (True if result else None)
            if now - outcome.taken_at > STALE_INTERVALS * settings.interval + settings.deadline:
                result, up, problem = None, False, problem or "no fresh answer of statvfs"
        asking = self.asking
        if asking is not None and now - asking[0] > settings.deadline:
            since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(asking[1]))
            problem, up = f"statvfs hangs since {since}", False
            if outcome is not None and now - outcome.taken_at > STALE_INTERVALS * settings.interval:
                result = None
        reading = FilesystemReading(self.mountpoint, mount.device, mount.type, mount.read_only, up, problem=problem)
        return reading if result is None else _with_values(reading, result)


def _with_values(reading: FilesystemReading, result: os.statvfs_result) -> FilesystemReading:
    """Fill in what statvfs said. No blocks or no inodes in all means that the filesystem does not count them."""
    reading = reading._replace(read_only=reading.read_only or bool(result.f_flag & os.ST_RDONLY))
    block = result.f_frsize
    if block > 0 and 0 < result.f_blocks >= result.f_bfree:
        used = result.f_blocks - result.f_bfree
        reading = reading._replace(size=result.f_blocks * block, available=result.f_bavail * block, used=used * block)
    if 0 < result.f_files >= result.f_ffree:
        reading = reading._replace(inodes=result.f_files, inodes_free=result.f_ffree)
    return reading


class _Lane:
    """A thread that does one round at a time.

    A daemon, so that a call that never returns cannot keep the process from ending.
    """

    __slots__ = ("_rounds", "busy", "cut_short", "thread")

    def __init__(self, name: str) -> None:
        self._rounds: SimpleQueue[Iterable[Callable[[], None]] | None] = SimpleQueue()
        self.busy = False
        self.cut_short = False
        """Set when others took over the rest of the round under way."""
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def offer(self, steps: Iterable[Callable[[], None]]) -> None:
        """Start a round unless one is still under way."""
        if not self.busy:
            self.busy, self.cut_short = True, False
            self._rounds.put(steps)

    def close(self) -> None:
        """Let the thread end after the call under way, whenever that returns."""
        self.cut_short = True
        self._rounds.put(None)

    def _run(self) -> None:
        while (steps := self._rounds.get()) is not None:
            for step in steps:
                step()
                if self.cut_short:
                    break
            self.busy = False


class Filesystems:
    """Samples the mounts that matter; `read` never blocks.

    Args:
        clock: when answers were taken, and since when one is awaited.
        procfs: where /proc is.
        settings: cadence, deadline and exclusions; `reconfigure` changes them.
        statvfs: asks one mount point; may block for as long as it likes.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        procfs: Path = Path("/proc"),
        settings: FilesystemSettings | None = None,
        statvfs: Statvfs = os.statvfs,
    ) -> None:
        self._clock = clock
        self._mountinfo = procfs / "self/mountinfo"
        self._settings = settings or FilesystemSettings()
        self._statvfs = statvfs
        self._local: _Lane | None = None
        self._lanes: dict[bytes, _Lane] = {}
        self._watched: dict[Mount, _Watched] = {}
        self._found: list[Mount] | None = None
        self._taken_over: list[Mount] | None = None
        self._listed_at = float("-inf")
        self._listed_with: FilesystemSettings | None = None
        self._due = float("-inf")
        self._poll: select.poll | None = None
        self._poll_fd = -1
        self.problem = ""
        """Why the list of mounts is incomplete or old; empty when it is neither."""

    def start(self) -> None:
        """Begin: the first answers are there a moment later (see `ready`)."""
        with suppress(OSError):  # no mount table: `_list` says so
            self._poll_fd = os.open(self._mountinfo, os.O_RDONLY | os.O_CLOEXEC)
            self._poll = select.poll()
            self._poll.register(self._poll_fd, select.POLLPRI)
        self._local = _Lane("filesystems")
        self._begin_round(self._clock.monotonic())

    def stop(self) -> None:
        """End all threads that can end; one in a call that hangs is left to itself."""
        lanes = [lane for lane in (*self._lanes.values(), self._local) if lane]
        for lane in lanes:
            lane.close()
        for lane in lanes:
            lane.thread.join(0 if lane.busy else 1.0)
        if self._poll_fd >= 0 and not (self._local and self._local.thread.is_alive()):
            os.close(self._poll_fd)
            self._poll_fd = -1
        self._poll, self._local, self._lanes = None, None, {}

    def reconfigure(self, settings: FilesystemSettings) -> None:
        """Take up other settings; the mount table is read again in the next round."""
        self._settings = settings
        self._due = float("-inf")

    def ready(self, now: float) -> bool:
        """Whether the mounts are known and each has answered, failed or missed its deadline once."""
        if self._found is None or self._found is not self._taken_over:
            return False
        deadline = self._settings.deadline
        return all(each.outcome or each.late(now, deadline) for each in self._watched.values())

    def read(self, now: float) -> list[FilesystemReading]:
        """Return every filesystem as last answered, and start the next round when it is due."""
        if self._local is not None:
            self._take_over()
            self._free_the_rest(now)
            if now >= self._due:
                self._begin_round(now)
        return [each.reading(now, self._settings) for each in self._watched.values()]

    def _take_over(self) -> None:
        """Adopt a new list of mounts: new ones are asked at once, lanes of gone ones end when they can."""
        found = self._found
        if found is None or found is self._taken_over:
            return
        self._taken_over = found
        # read_only may change by remounting: the same mount, so its answers stay.
        known = {mount.path: watched for mount, watched in self._watched.items()}
        self._watched = {}
        for mount in found:
            old = known.get(mount.path)
            if old is not None and old.mount.id == mount.id:
                watched, old.mount = old, mount
            else:
                watched = _Watched(mount)
                if old is not None and self._own_lane(mount):
                    watched.asking = old.asking  # a call on the mount before still holds the thread of this place
            self._watched[mount] = watched
        gone = self._lanes.keys() - {mount.path for mount in found}
        for path in [path for path in gone if not self._lanes[path].busy]:
            self._lanes.pop(path).close()
        self._due = float("-inf")

    def _free_the_rest(self, now: float) -> None:
        """Give the other local mounts a new thread when one of them blocks the shared one."""
        for mount, watched in self._watched.items():
            if not self._own_lane(mount) and watched.late(now, self._settings.deadline) and self._local is not None:
                self._local.cut_short = True
                self._lanes[mount.path] = self._local
                self._local = _Lane("filesystems")
                self._due = float("-inf")
                return

    def _own_lane(self, mount: Mount) -> bool:
        return mount.network or mount.path in self._lanes

    def _begin_round(self, now: float) -> None:
        self._due = now + self._settings.interval
        shared: list[Callable[[], None]] = [self._list]
        for mount, watched in self._watched.items():
            step = partial(watched.ask, self._statvfs, self._clock)
            if not self._own_lane(mount):
                shared.append(step)
            else:
                # By mount point: a server remounted again and again while it hangs still costs one thread.
                lane = self._lanes.get(mount.path)
                if lane is None:
                    lane = self._lanes[mount.path] = _Lane(f"filesystem {watched.mountpoint}")
                lane.offer((step,))
        if self._local is not None:
            self._local.offer(shared)

    def _list(self) -> None:
        """Read the mount table if it changed or is due (in the shared thread)."""
        now = self._clock.monotonic()
        changed = (poll := self._poll) is not None and any(event & select.POLLPRI for _, event in poll.poll(0))
        settings = self._settings
        if not changed and settings is self._listed_with and now - self._listed_at < RELIST_SECONDS:
            return
        try:
            mounts = select_mounts(parse_mountinfo(self._mountinfo.read_bytes()), settings)
        except OSError as failure:
            self.problem = f"cannot read the mount table {self._mountinfo}: {failure.strerror}"
            return
        kept = [mount for mount in mounts if not mount.network][:MAX_MOUNTS]
        kept += [mount for mount in mounts if mount.network][:MAX_MOUNTS]
        left_out = len(mounts) - len(kept)
        self.problem = f"{left_out} mounts are not watched, {MAX_MOUNTS} of a kind are" if left_out else ""
        self._listed_at, self._listed_with = now, settings
        if kept != self._found:
            self._found = kept
