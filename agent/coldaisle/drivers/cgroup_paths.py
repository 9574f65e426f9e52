"""Who owns a process, from the paths in /proc/PID/cgroup. Pure.

Knows cgroup v1, v2 and the hybrid of both; Docker, Podman, nerdctl, containerd and CRI-O with the cgroupfs and the
systemd driver; Kubernetes with its QoS levels; Slurm with both cgroup plugins.
"""

import re
from typing import NamedTuple


class Owner(NamedTuple):
    """What a process belongs to. Empty text: does not apply or is not known.

    `runtime` is `docker`, `podman`, `nerdctl`, `containerd`, `crio`, `kubernetes` (runtime not named in the path) or
    `container` (only an id is visible). `qos` is `guaranteed`, `burstable` or `besteffort`. `slurm_step` is a number,
    `batch`, `extern` or `interactive`.
    """

    runtime: str = ""
    container_id: str = ""
    pod_uid: str = ""
    qos: str = ""
    slurm_job: str = ""
    slurm_step: str = ""
    slurm_uid: str = ""


_ID = r"([0-9a-f]{64})"
_UUID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}"
_END = r"(?:\.scope)?(?=/|$)"
# A static pod's uid is a hash without dashes.
_POD = re.compile(
    rf"(?:^|[/-])(?:(burstable|besteffort)[/-])?(?:kubepods-)?pod({_UUID}|[0-9a-f]{{32}})(?:\.slice)?(?=[/:]|$)"
)
_QOS = re.compile(r"kubepods(?:\.slice)?[/-](?:[a-z-]*kubepods-)?(burstable|besteffort)\b")
_SCOPES = {
    "docker": re.compile(rf"/docker(?:-|/){_ID}{_END}"),
    "podman": re.compile(rf"/libpod-{_ID}{_END}"),
    "nerdctl": re.compile(rf"/nerdctl-{_ID}{_END}"),
    "containerd": re.compile(rf"(?:/cri-containerd-|:cri-containerd:){_ID}{_END}"),
    "crio": re.compile(rf"/crio-{_ID}{_END}"),
}
_POD_CHILD = re.compile(rf"/pod(?:{_UUID}|[0-9a-f]{{32}})/{_ID}(?=/|$)")
# From inside a cgroup namespace a sibling is seen as a path that climbs out of it.
_SIBLING = re.compile(rf"^(?:/\.\.)+(?:/[a-z_-]*)?/{_ID}(?=/|$)")
_SLURM_V1 = re.compile(r"^/slurm(?:_[\w.-]{1,64})?/uid_(\d{1,10})/job_(\d{1,10})(?:/step_(\w{1,16}))?(?=/|$)")
_SLURM_V2 = re.compile(r"/(?:[\w.-]{1,64}_)?slurmstepd\.scope/job_(\d{1,10})(?:/step_(\w{1,16}))?(?=/|$)")
_PATH_LIMIT = 4_096
_LINE_LIMIT = 64


def parse_cgroup(text: str) -> Owner | None:
    """Return the owner that /proc/PID/cgroup names, None for a process of the host itself.

    Lines may disagree (a v1 controller that a runtime does not use stays at the root): what any line says counts.
    """
    owner = Owner()
    for line in text.splitlines()[:_LINE_LIMIT]:
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[0].isdigit() and len(parts[2]) <= _PATH_LIMIT:
            owner = _merge(owner, parse_path(parts[2]))
    return owner if owner != Owner() else None


def parse_path(path: str) -> Owner:
    """Return what one cgroup path says."""
    runtime, container = _container(path)
    pod, qos = _pod(path)
    job, step, uid = _slurm(path)
    if pod and container and runtime == "container":
        runtime = "kubernetes"
    return Owner(runtime or ("kubernetes" if pod else ""), container, pod, qos, job, step, uid)


def _container(path: str) -> tuple[str, str]:
    for runtime, pattern in _SCOPES.items():
        if (match := pattern.search(path)) is not None:
            return runtime, match[1]
    if (match := _POD_CHILD.search(path) or _SIBLING.search(path)) is not None:
        return "container", match[1]
    return "", ""


def _pod(path: str) -> tuple[str, str]:
    if "pod" not in path or (match := _POD.search(path)) is None:
        return "", ""
    qos = match[1] or ((level := _QOS.search(path)) and level[1]) or "guaranteed"
    return match[2].replace("_", "-"), qos


def _slurm(path: str) -> tuple[str, str, str]:
    if (match := _SLURM_V1.match(path)) is not None:
        return match[2], match[3] or "", match[1]
    if (match := _SLURM_V2.search(path)) is not None:
        return match[1], match[2] or "", ""
    return "", "", ""


def _merge(one: Owner, other: Owner) -> Owner:
    if one.runtime in {"container", "kubernetes"} and other.runtime:
        one = one._replace(runtime="")  # another line names the runtime itself
    return Owner(*(mine or theirs for mine, theirs in zip(one, other, strict=True)))
