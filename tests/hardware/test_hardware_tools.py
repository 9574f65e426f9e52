"""The tools for machines with a GPU, tried without one."""

import gzip
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import ab
import compare
import loads
import merge_labels
import session

from coldaisle.domain.clock import FakeClock
from coldaisle.domain.errors import ColdaisleError
from coldaisle.drivers.recording import ReplayNvml, summary


def test_plan():
    """A plan is labels with seconds; what is none ends in one line that says what there is."""
    assert session.parse(["idle:60", "cool2:5", "memory_copy:1.5", "ab:12"]) == [
        ("idle", 60.0),
        ("cool2", 5.0),
        ("memory_copy", 1.5),
        ("ab", 12.0),
    ]
    for wrong in ("frobnicate:3", "idle", "idle:x", "idle:0", "memory_copy:-1", "idle:nan"):
        with pytest.raises(SystemExit, match=wrong.split(":")[0]):
            session.parse([wrong])


def test_loads_are_a_dozen_and_more():
    """The loads that recordings are made of are all there, by these names."""
    wanted = """compute_bf16_matmul compute_fp32_matmul compute_fp64_matmul memory_copy memory_elementwise
        memory_decode_gemv single_block_kernel launch_bound_tiny_kernels train_healthy_bf16 train_starved_200ms
        pcie_h2d_copy train_h2d_heavy int8_matmul gather_random two_processes""".split()
    assert set(wanted) <= set(loads.NAMES)
    with pytest.raises(SystemExit, match="no such load"):
        loads.main("frobnicate", 1)


def test_no_setter_is_ever_called():
    """Nothing here sets anything on a GPU."""
    words = ("nvmlDevice" + "Set", "nvidia-smi -", "set_per_process", "--power-limit", "--lock-gpu", "--gpu-reset")
    text = "".join(path.read_text() for path in HERE.glob("*.py") if path.name != Path(__file__).name)
    assert [word for word in words if word in text] == []


EXPOSITION = """# TYPE dgx_gpu_temperature_celsius gauge
dgx_gpu_temperature_celsius{gpu="1",uuid="b",sensor="core"} 99
dgx_gpu_temperature_celsius{gpu="0",uuid="a",sensor="core"} 61
dgx_gpu_clock_hertz{gpu="0",uuid="a",clock="sm"} 1980000000.0
dgx_gpu_memory_bytes{gpu="0",uuid="a",state="used"} 1048576
dgx_gpu_utilization_ratio{gpu="0",uuid="a"} 0.5
"""


def test_quantities_are_in_the_same_unit():
    """Ours is turned into nvidia-smi's units, for GPU 0; what is absent on either side is compared with nothing."""
    command = (sys.executable, str(HERE / "fake_nvidia_smi.py"), *compare.SMI[1:])
    row = {"ours": compare.ours(EXPOSITION), "theirs": compare.theirs(command)}
    assert row["ours"]["temperature.gpu"] == 61
    assert row["theirs"]["temperature.memory"] is None
    found = compare.differences([row, row])
    assert found.keys() == {"temperature.gpu", "clocks.sm", "memory.used", "utilization.gpu"}
    assert found["clocks.sm"] == (2, 1980.0, 345.0, 1635.0, 1635.0)
    assert found["utilization.gpu"][1] == 50.0


def test_every_compared_quantity_exists():
    """The series that are compared are series that a recorded H200 gives."""
    text = (HERE.parent / "recordings/h200-mixed.idle.metrics").read_text()
    assert [name for name, value in compare.ours(text).items() if value is None] == []


@pytest.mark.parametrize("command", [("/nonexistent",), (sys.executable, "-c", "print(1)"), ("false",)])
def test_a_failing_nvidia_smi_gives_no_values(command):
    """Without nvidia-smi, or with an answer of another shape, there is nothing to compare."""
    assert set(compare.theirs(command).values()) == {None}


def test_ab_says_when_the_difference_is_real():
    """The agent's cost counts as none only within the spread of the runs without it."""
    assert "within" in ab.conclusion([99.9, 100.0], [99.5, 100.5])[2]
    assert "BEYOND" in ab.conclusion([90.0, 110.0], [110.0, 110.1])[2]
    assert ab.rate_of([(1.0, 10), (2.0, 20), (3.0, 50)]) == 20.0
    with pytest.raises(SystemExit, match="no progress"):
        ab.rate_of([(1.0, 10)])


def recording(path, rows=(), **header):
    rows = [{"coldaisle_recording": 2, **header}, ["f", 0, "nvmlDeviceGetHandleByIndex"], *rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_labels_are_merged_at_their_time(tmp_path):
    """Labels come before the first call of their time, facts into the header; the same input gives the same bytes."""
    call = [0, -1, [0], None]
    rows = [[0, *call], {"about": {"product": "NVIDIA H200"}}, [1000, *call], [2000, *call], [3000, *call]]
    recording(tmp_path / "r", rows, day="2026-12-01", monotonic=500.0)
    marks = [("idle", 499.9), ("memory_copy", 501.5), ("end", 503.5)]
    (tmp_path / "t").write_text(
        "".join(json.dumps({"label": n, "monotonic": m, "unix": 1.8e9}) + "\n" for n, m in marks)
    )
    for name in ("a.gz", "b.gz"):
        merge_labels.main([str(tmp_path / part) for part in ("r", "t", name)])
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    text = gzip.decompress((tmp_path / "a.gz").read_bytes()).decode()
    header = {"coldaisle_recording": 2, "day": "2026-12-01", "product": "NVIDIA H200"}
    assert json.loads(text.splitlines()[0]) == header
    assert summary(str(tmp_path / "a.gz")) == [("idle", 1.5, 2), ("memory_copy", 2.0, 2), ("end", 0.0, 0)]
    ReplayNvml(str(tmp_path / "a.gz"), FakeClock()).nvmlDeviceGetHandleByIndex(0)


def test_merging_needs_the_beginning(tmp_path):
    """A recording that does not say when it began cannot be labelled."""
    recording(tmp_path / "r")
    (tmp_path / "t").touch()
    with pytest.raises(ColdaisleError, match="when it began"):
        merge_labels.merge(tmp_path / "r", tmp_path / "t", tmp_path / "x")
    with pytest.raises(SystemExit, match="when it began"):
        merge_labels.main([str(tmp_path / part) for part in ("r", "t", "x")])
    assert not (tmp_path / "x").exists()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(out, port, *plan):
    return subprocess.Popen(
        [
            sys.executable,
            str(HERE / "session.py"),
            "--dry",
            "--port",
            str(port),
            "--every",
            "0.5",
            "--out",
            str(out),
            *plan,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_session_without_a_gpu(tmp_path):
    """All of a session but the GPU: phases, comparison, cost, recording, labels, and the agent ended."""
    process = start(tmp_path, free_port(), "idle:1", "memory_copy:1", "cool:1")
    output = process.communicate(timeout=90)[0]
    assert process.returncode == 0, output
    phases = [json.loads(line) for line in (tmp_path / "phases.jsonl").read_text().splitlines()]
    assert [phase["label"] for phase in phases] == ["idle", "memory_copy", "cool"]
    assert phases[1]["differences"]["power.limit"][4] == 0
    assert float(phases[1]["rate"]) > 0
    assert {"main", "nvml_child"} <= phases[0]["pss_mib"].keys()
    assert "exit code 0, port free after" in output
    assert "greatest difference" in (tmp_path / "summary.txt").read_text()
    merge_labels.main([str(tmp_path / part) for part in ("recording.jsonl.gz", "timeline.jsonl", "merged.jsonl.gz")])
    parts = {label: calls for label, _, calls in summary(str(tmp_path / "merged.jsonl.gz"))}
    assert parts["memory_copy"] > 0


def test_a_session_that_is_cut_off(tmp_path):
    """SIGTERM in the middle of a load leaves results and recording, and nothing that runs on."""
    port = free_port()
    seconds = 600 + port / 100_000  # tells this load from any other on the machine
    process = start(tmp_path, port, "idle:1", f"memory_copy:{seconds}")
    for line in process.stdout:
        if line.strip().startswith("memory_copy"):
            break
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=60)[0]
    assert process.returncode == 143, rest
    assert "stopped by SIGTERM: exit code 0" in rest
    assert [parts[0] for parts in summary(str(tmp_path / "recording.jsonl.gz"))] == [""]
    assert [json.loads(line)["label"] for line in (tmp_path / "timeline.jsonl").read_text().splitlines()][-1] == "end"
    for words in (f"127.0.0.1:{port}", f"memory_copy {seconds}"):
        assert subprocess.run(["pgrep", "-f", words], stdout=subprocess.PIPE).stdout == b""
