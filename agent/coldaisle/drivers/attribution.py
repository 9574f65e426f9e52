"""Which container, pod or Slurm job a process or a GPU belongs to: /proc/PID/cgroup and job mapping files.

Reads small files of the kernel and of a local directory; a mapping directory on a network mount belongs on a thread.
"""

import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from coldaisle.drivers.cgroup_paths import Owner, parse_cgroup

__all__ = ["JobMap", "Mapping", "Owner", "Resolver", "parse_cgroup"]

UNOWNED_TTL = 10.0
"""Seconds that "belongs to nobody" is believed: runtimes and Slurm move a process into its cgroup after it started."""
CACHE_LIMIT = 4_096
_READ_LIMIT = 65_536
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO, the same on every Linux


class _Entry(NamedTuple):
    start_time: int
    owner: Owner | None
    read_at: float


class Resolver:
    """Maps process ids, as the driver and the kernel log give them, to owners.

    Those ids are the host's. Where this /proc shows another namespace's, the same number is another process: then
    nothing is resolved and `problem` says why.

    Args:
        proc: the /proc to read; in a container, the host's as mounted there.
        trust_namespace: the ids come from this /proc's own namespace, whatever it is.
    """

    def __init__(self, proc: str = "/proc", *, trust_namespace: bool = False) -> None:
        self._proc = proc
        self._cache: dict[int, _Entry] = {}
        self.problem = "" if trust_namespace or shows_host_pids(proc) else _foreign_namespace(proc)

    def resolve(self, pid: int, now: float) -> Owner | None:
        """Return the owner, None for a process of the host, one that is gone, or one that cannot be known.

        `now` is monotonic seconds. Known processes cost one small read.
        """
        if self.problem or pid <= 0:
            return None
        start_time = self._start_time(pid)
        if start_time is None:
            self._cache.pop(pid, None)
            return None
        entry = self._cache.get(pid)
        if (
            entry is not None
            and entry.start_time == start_time
            and (entry.owner is not None or now - entry.read_at < UNOWNED_TTL)
        ):
            return entry.owner
        owner = parse_cgroup(self._read(pid, "cgroup") or "")
        if self._start_time(pid) != start_time:
            return None  # the id was given to another process between the reads
        if len(self._cache) >= CACHE_LIMIT:
            self._cache.pop(next(iter(self._cache)))
        self._cache[pid] = _Entry(start_time, owner, now)
        return owner

    def _read(self, pid: int, name: str) -> str | None:
        try:
            with Path(self._proc, str(pid), name).open("rb") as file:
                return file.read(_READ_LIMIT).decode("utf-8", "replace")
        except OSError:
            return None

    def _start_time(self, pid: int) -> int | None:
        text = self._read(pid, "stat")
        if text is None:
            return None
        # The name may hold blanks and brackets; the fields after the last bracket are numbers, start time the 20th.
        fields = text.rpartition(")")[2].split()
        return int(fields[19]) if len(fields) > 19 and fields[19].isascii() and fields[19].isdigit() else None


def shows_host_pids(proc: str) -> bool:
    """Return whether `proc` numbers processes as the host does; True where it cannot be told."""
    try:
        status = Path(proc, "self", "status").read_text(encoding="utf-8", errors="replace")
        namespace = str(Path(proc, "self", "ns", "pid").readlink())
    except OSError:
        return True
    for line in status.splitlines():
        # Our ids from this mount's namespace down to our own: more than one means the mount is an ancestor's.
        if line.startswith("NSpid:") and len(line.split()) > 2:
            return True
    return namespace == _INITIAL_PID_NAMESPACE


def _foreign_namespace(proc: str) -> str:
    return (
        f"{proc} shows a container's process ids, the driver gives the host's: jobs cannot be told;"
        " share the host's PID namespace (hostPID: true) or mount the host's /proc and name it"
    )


class Mapping(NamedTuple):
    """Jobs by GPU, as a scheduler's prolog wrote them. `problems` are lines for a person, one a bad file."""

    jobs: dict[str, tuple[str, ...]]
    problems: tuple[str, ...]


_GPU_KEY = re.compile(r"\d{1,3}(?:\.\d{1,2})?|(?:GPU|MIG)-[0-9A-Za-z/-]{8,80}")
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+\[\]-]{0,63}")
_MAX_FILES, _MAX_JOBS, _MAX_BYTES = 512, 64, 4_096


class JobMap:
    """Reads a directory with one file per GPU, named by index, `index.instance` or UUID.

    A line holds a job id, as dcgm-exporter's job mapping has it; what follows after a blank (a user id in Slurm
    prologs' own format) is ignored. Files that did not change are not read again.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._seen: dict[str, tuple[tuple[int, int, int], tuple[str, ...], str]] = {}

    def read(self) -> Mapping:
        """Return what the directory says now. Never raises: what is wrong is in `problems`."""
        try:
            with os.scandir(self._directory) as entries:
                found = [entry for _, entry in zip(range(_MAX_FILES), entries, strict=False)]
        except OSError as error:
            remedy = "create it (the prolog writes there) or unset the option"
            return Mapping({}, (f"{self._directory}: {error.strerror}; {remedy}",))
        jobs: dict[str, tuple[str, ...]] = {}
        problems = []
        seen = {}
        for entry in sorted(found, key=lambda entry: entry.name):
            if entry.name.startswith(".") or entry.name.endswith((".tmp", "~")):
                continue  # being written
            state = self._read_entry(entry)
            if state is None:
                continue  # removed between listing and reading: the job ended
            seen[entry.name] = state
            _, ids, problem = state
            if problem:
                problems.append(f"{entry.path}: {problem}")
            if ids:
                jobs[entry.name] = ids
        self._seen = seen
        return Mapping(jobs, tuple(problems))

    def _read_entry(self, entry: "os.DirEntry[str]") -> tuple[tuple[int, int, int], tuple[str, ...], str] | None:
        try:
            info = entry.stat(follow_symlinks=False)
        except OSError:
            return None
        version = (info.st_ino, info.st_mtime_ns, info.st_size)
        if (known := self._seen.get(entry.name)) is not None and known[0] == version:
            return known
        if problem := _unfit(entry.name, info):
            return version, (), problem
        try:
            return version, *parse_mapping(_content(entry.path))
        except FileNotFoundError:
            return None
        except OSError as error:
            return version, (), f"{error.strerror}; let the agent's user read it"


def _unfit(name: str, info: os.stat_result) -> str:
    if _GPU_KEY.fullmatch(name) is None:
        return "not a GPU's index or UUID; name the file after the GPU or remove it"
    if not stat.S_ISREG(info.st_mode):
        return "not a regular file; the prolog must write one"
    if info.st_size > _MAX_BYTES:
        return f"{info.st_size} bytes; a job id a line is expected"
    return ""


def _content(path: str) -> bytes:
    # It was a regular file a moment ago; should it be a link or a FIFO by now, this neither follows nor blocks.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_MAX_BYTES)


def parse_mapping(content: bytes) -> tuple[tuple[str, ...], str]:
    """Return the job ids of one mapping file, and what is wrong with it (empty if nothing)."""
    ids: dict[str, None] = {}
    problem = ""
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), start=1):
        job = line.split()[0] if line.split() else ""
        if not job or job in ids:
            continue
        if _JOB.fullmatch(job) is None:
            problem = problem or f"line {number} is not a job id; a job id a line is expected"
        elif len(ids) >= _MAX_JOBS:
            problem = problem or f"more than {_MAX_JOBS} jobs; the rest is left out"
        else:
            ids[job] = None
    return tuple(ids), problem
