"""Cgroup layouts as runtimes write them, the resolver on a fake /proc, and job mapping files."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldaisle.drivers.attribution import JobMap, Owner, Resolver, parse_cgroup, parse_mapping

ID = "4f8b1e0c" * 8
POD = "1f2e3d4c-0000-1111-2222-333344445555"
POD_ = POD.replace("-", "_")

LAYOUTS = [
    ("docker, v1 cgroupfs", f"12:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}\n", Owner("docker", ID)),
    ("docker, v1 systemd", f"5:devices:/system.slice/docker-{ID}.scope\n", Owner("docker", ID)),
    ("docker, v2 systemd", f"0::/system.slice/docker-{ID}.scope\n", Owner("docker", ID)),
    ("docker, hybrid: v2 line at the root", f"0::/\n12:memory:/docker/{ID}\n", Owner("docker", ID)),
    ("docker, child of the container", f"0::/system.slice/docker-{ID}.scope/init\n", Owner("docker", ID)),
    ("podman, root", f"0::/machine.slice/libpod-{ID}.scope/container\n", Owner("podman", ID)),
    (
        "podman, rootless",
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope\n",
        Owner("podman", ID),
    ),
    ("podman, cgroupfs", f"4:cpu,cpuacct:/libpod_parent/libpod-{ID}\n", Owner("podman", ID)),
    ("nerdctl", f"0::/system.slice/nerdctl-{ID}.scope\n", Owner("nerdctl", ID)),
    (
        "kubepods burstable, cgroupfs",
        f"9:memory:/kubepods/burstable/pod{POD}/{ID}\n",
        Owner("kubernetes", ID, POD, "burstable"),
    ),
    (
        "kubepods guaranteed, cgroupfs",
        f"9:memory:/kubepods/pod{POD}/{ID}\n",
        Owner("kubernetes", ID, POD, "guaranteed"),
    ),
    (
        "containerd, systemd",
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD_}.slice/cri-containerd-{ID}.scope\n",
        Owner("containerd", ID, POD, "burstable"),
    ),
    (
        "containerd, systemd, guaranteed",
        f"0::/kubepods.slice/kubepods-pod{POD_}.slice/cri-containerd-{ID}.scope\n",
        Owner("containerd", ID, POD, "guaranteed"),
    ),
    (
        "containerd, cgroupfs names under its own service",
        f"8:memory:/system.slice/containerd.service/kubepods-besteffort-pod{POD_}.slice:cri-containerd:{ID}\n",
        Owner("containerd", ID, POD, "besteffort"),
    ),
    (
        "CRI-O",
        f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{POD_}.slice/crio-{ID}.scope/container\n",
        Owner("crio", ID, POD, "besteffort"),
    ),
    (
        "kind, nested kubelet slice",
        f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{POD_}.slice/cri-containerd-{ID}.scope\n",
        Owner("containerd", ID, POD, "burstable"),
    ),
    (
        "static pod",
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{'ab12' * 8}.slice/cri-containerd-{ID}.scope\n",
        Owner("containerd", ID, "ab12" * 8, "burstable"),
    ),
    (
        "slurm v1",
        "11:devices:/slurm/uid_1000/job_4711/step_0/task_3\n4:cpuset:/slurm/uid_1000/job_4711/step_0\n",
        Owner(slurm_job="4711", slurm_step="0", slurm_uid="1000"),
    ),
    (
        "slurm v1, several slurmd",
        "11:devices:/slurm_node1/uid_0/job_7/step_batch\n",
        Owner(slurm_job="7", slurm_step="batch", slurm_uid="0"),
    ),
    (
        "slurm v2",
        "0::/system.slice/slurmstepd.scope/job_4711/step_extern/user/task_0\n",
        Owner(slurm_job="4711", slurm_step="extern"),
    ),
    (
        "slurm v2, named slurmd",
        "0::/system.slice/node1_slurmstepd.scope/job_9/step_2/user/task_0\n",
        Owner(slurm_job="9", slurm_step="2"),
    ),
    (
        "docker inside a slurm job",
        f"11:devices:/slurm/uid_5/job_3/step_0\n9:memory:/docker/{ID}\n",
        Owner("docker", ID, slurm_job="3", slurm_step="0", slurm_uid="5"),
    ),
    ("sibling seen from a cgroup namespace", f"0::/../{ID}\n", Owner("container", ID)),
]
NOBODY = [
    "",
    "0::/\n",
    "0::/init.scope\n",
    "0::/user.slice/user-1000.slice/session-3.scope\n",
    "0::/system.slice/docker.service\n",
    f"0::/machine.slice/libpod-conmon-{ID}.scope\n",
    f"0::/kubepods.slice/crio-conmon-{ID}.scope\n",
    f"0::/docker/{ID[:20]}\n",
    "0::/system.slice/slurmd.service\n",
    "0::/home/slurm/uid_1/job_2\n",
    "not a cgroup file",
]


@pytest.mark.parametrize(("text", "owner"), [layout[1:] for layout in LAYOUTS], ids=[layout[0] for layout in LAYOUTS])
def test_layouts_name_their_owner(text, owner):
    """Each runtime's cgroup layout gives the container, pod or job."""
    assert parse_cgroup(text) == owner


@pytest.mark.parametrize("text", NOBODY)
def test_host_processes_and_monitors_belong_to_nobody(text):
    """Services, sessions and the runtimes' own monitor processes are not taken for containers."""
    assert parse_cgroup(text) is None


@given(st.text(max_size=2000))
def test_hostile_cgroup_text_never_raises(text):
    """Cgroup names are chosen by users."""
    owner = parse_cgroup(text)
    assert owner is None or isinstance(owner, Owner)


def add_process(proc, pid, cgroup, start=100, name="python3"):
    directory = proc / str(pid)
    directory.mkdir(exist_ok=True)
    fields = " ".join(["S", *["0"] * 18, str(start), "0"])
    (directory / "stat").write_text(f"{pid} ({name}) {fields}\n")
    (directory / "cgroup").write_text(cgroup)


def test_resolver_reads_a_process_once(tmp_path):
    """A known process keeps its owner; a new process with the same number is read afresh."""
    add_process(tmp_path, 42, f"0::/docker/{ID}\n", name="a) b (c")
    resolver = Resolver(str(tmp_path))
    assert resolver.resolve(42, 0.0) == Owner("docker", ID)
    add_process(tmp_path, 42, "0::/\n", name="a) b (c")
    assert resolver.resolve(42, 1.0) == Owner("docker", ID)
    add_process(tmp_path, 42, "0::/\n", start=200)
    assert resolver.resolve(42, 2.0) is None


def test_process_that_moves_into_its_cgroup_is_noticed(tmp_path):
    """Runtimes move a process after its start, so that "nobody" is believed for seconds only."""
    add_process(tmp_path, 42, "0::/\n")
    resolver = Resolver(str(tmp_path))
    assert resolver.resolve(42, 0.0) is None
    add_process(tmp_path, 42, "0::/system.slice/slurmstepd.scope/job_1/step_0\n")
    assert resolver.resolve(42, 5.0) is None
    assert resolver.resolve(42, 11.0) == Owner(slurm_job="1", slurm_step="0")


def test_processes_that_are_gone_have_no_owner(tmp_path):
    """A vanished process, pid 0 and a garbled stat give None."""
    resolver = Resolver(str(tmp_path))
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (x) S 1")
    assert [resolver.resolve(pid, 0.0) for pid in (0, -1, 7, 99)] == [None] * 4


@pytest.mark.parametrize(
    ("nspid", "namespace", "foreign"),
    [("77", "pid:[4026531836]", False), ("7", "pid:[4026532999]", True), ("4711\t7", "pid:[4026532999]", False)],
)
def test_foreign_pid_namespaces_resolve_nothing(tmp_path, nspid, namespace, foreign):
    """In a container's own /proc the host's numbers are other processes; the host's /proc mounted there is right."""
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "status").write_text(f"Name:\tx\nNSpid:\t{nspid}\n")
    (tmp_path / "self" / "ns" / "pid").symlink_to(namespace)
    add_process(tmp_path, 42, f"0::/docker/{ID}\n")
    resolver = Resolver(str(tmp_path))
    assert bool(resolver.problem) is foreign
    assert (resolver.resolve(42, 0.0) is None) is foreign
    assert Resolver(str(tmp_path), trust_namespace=True).resolve(42, 0.0) == Owner("docker", ID)


def test_job_map_reads_both_prolog_formats(tmp_path):
    """One id a line (dcgm-exporter), or id and user id (Slurm prologs of jobstats); GPUs by index, instance or UUID."""
    (tmp_path / "0").write_text("4711\n")
    (tmp_path / "1").write_text("4711\n4712\n\n")
    (tmp_path / "2.1").write_text("4713 262563\n")
    (tmp_path / "MIG-265a219d-a49f-578a-825d-222c72699c16").write_text("45916256_3 262563")
    (tmp_path / "3").write_text("")
    (tmp_path / ".3.swp").write_text("x")
    mapping = JobMap(str(tmp_path)).read()
    assert mapping.jobs == {
        "0": ("4711",),
        "1": ("4711", "4712"),
        "2.1": ("4713",),
        "MIG-265a219d-a49f-578a-825d-222c72699c16": ("45916256_3",),
    }
    assert mapping.problems == ()


def test_bad_mapping_file_is_one_line_and_the_rest_goes_on(tmp_path):
    """Each bad file costs one problem line; good files, and good lines of bad ones, still count."""
    (tmp_path / "0").write_text("4711\n")
    (tmp_path / "1").write_bytes(b"\xff\xfe\x00bad\n4712\n")
    (tmp_path / "2").write_text("9" * 5000)
    (tmp_path / "3").mkdir()
    os.mkfifo(tmp_path / "4")
    (tmp_path / "5").symlink_to("/etc/passwd")
    (tmp_path / "notes.txt").write_text("4711")
    mapping = JobMap(str(tmp_path)).read()
    assert mapping.jobs == {"0": ("4711",), "1": ("4712",)}
    names = [problem.removeprefix(f"{tmp_path}/").partition(":")[0] for problem in mapping.problems]
    assert names == ["1", "2", "3", "4", "5", "notes.txt"]
    assert all("\n" not in problem for problem in mapping.problems)


def test_job_map_follows_changes(tmp_path):
    """A rewritten file is read again, a removed one frees its GPU, a missing directory is one problem."""
    jobs = JobMap(str(tmp_path / "map"))
    assert len(jobs.read().problems) == 1
    (tmp_path / "map").mkdir()
    target = tmp_path / "map" / "0"
    target.write_text("1\n")
    assert jobs.read().jobs == {"0": ("1",)}
    target.write_text("4712\n")
    assert jobs.read().jobs == {"0": ("4712",)}
    target.unlink()
    assert jobs.read().jobs == {}


@given(st.binary(max_size=4096))
def test_hostile_mapping_content_stays_bounded(content):
    """Whatever a file holds, job ids are short, plain and few."""
    ids, _ = parse_mapping(content)
    assert len(ids) <= 64
    assert all(len(job) <= 64 and job.isascii() for job in ids)
