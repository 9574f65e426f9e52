"""Recordings: what was answered comes back, nothing private is in the file, and damage is one clear line."""

import gzip
import json
import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pynvml
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fake_nvml import FakeNvml, error

from coldaisle.domain.clock import FakeClock
from coldaisle.domain.errors import ColdaisleError
from coldaisle.drivers.nvml.gpu_reader import GpuReader
from coldaisle.drivers.recording import RecordingNvml, ReplayNvml, lines, summary

ROOT = Path(__file__).parents[2]


def vendor():
    utilization = pynvml.c_nvmlUtilization_t()
    utilization.gpu, utilization.memory = 99, 12
    return FakeNvml(
        {
            "nvmlDeviceGetHandleByIndex": "handle",
            "nvmlDeviceGetUUID": "GPU-secret",
            "nvmlDeviceGetSerial": "1654024032458",
            "nvmlDeviceGetTemperature": 61,
            "nvmlDeviceGetUtilizationRates": utilization,
            "nvmlDeviceGetPowerUsage": 700_000,
            "nvmlDeviceGetMarginTemperature": error(15),
        },
        {186: (0, 1, 698_500), 194: (0, 5, -2)},
        gpm={2: (0, 93.5), 10: (0, math.nan)},
    )


def read(source, clock, handle):
    reader = GpuReader(source, handle, clock.monotonic, lambda name, function, *args: function(*args))
    frames = []
    for _ in range(3):
        frames.append((reader.read("fast").values, reader.read("static").values))
        clock.advance(1)
    return frames


def record(path):
    clock = FakeClock()
    recorder = RecordingNvml(vendor(), str(path), clock)
    handle = recorder.nvmlDeviceGetHandleByIndex(0)
    recorder.nvmlDeviceGetUUID(handle)
    recorder.nvmlDeviceGetSerial(handle)
    with pytest.raises(pynvml.NVMLError):
        recorder.nvmlDeviceGetMarginTemperature(handle)
    frames = read(recorder, clock, handle)
    recorder.close()
    return frames


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_replay_gives_the_same_frames(tmp_path, name):
    """The real driver reads the same values from the replay as it read from the vendor."""
    recorded = record(tmp_path / name)
    clock = FakeClock()
    replay = ReplayNvml(str(tmp_path / name), clock)
    assert read(replay, clock, replay.nvmlDeviceGetHandleByIndex(0)) == recorded
    assert recorded[1][0].count(0.935) == 1


def test_errors_come_back(tmp_path):
    """A recorded NVML error is raised again with its code; what was never asked is not supported."""
    record(tmp_path / "r")
    replay = ReplayNvml(str(tmp_path / "r"), FakeClock())
    handle = replay.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(pynvml.NVMLError) as raised:
        replay.nvmlDeviceGetMarginTemperature(handle)
    assert raised.value.value == 15
    with pytest.raises(pynvml.NVMLError) as raised:
        replay.nvmlDeviceGetFanSpeed(handle)
    assert raised.value.value == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_nothing_private_is_written(tmp_path):
    """UUID and serial are replaced before they reach the file."""
    record(tmp_path / "r")
    text = (tmp_path / "r").read_text()
    assert "secret" not in text
    assert "1654024032458" not in text
    assert "GPU-00000000-0000-0000-0000-000000000000" in text


def test_same_answers_take_no_space(tmp_path):
    """An answer that did not change is one character."""
    record(tmp_path / "r")
    last = [json.loads(line) for line in lines(str(tmp_path / "r"))][-1]
    assert last[-1] == "="


def test_torn_end_is_left_out(tmp_path):
    """A recorder that was killed leaves a file that can be read up to its last whole line."""
    record(tmp_path / "r.gz")
    data = (tmp_path / "r.gz").read_bytes()
    (tmp_path / "torn.gz").write_bytes(data[: len(data) * 2 // 3])
    whole = list(lines(str(tmp_path / "torn.gz")))
    assert 1 < len(whole) < len(list(lines(str(tmp_path / "r.gz"))))
    ReplayNvml(str(tmp_path / "torn.gz"), FakeClock())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is no recording"),
        ("hello\n", "is no recording"),
        ('{"coldaisle_recording":1}\n[1,2]\n', ":2: is no line of a recording"),
        ('{"coldaisle_recording":1}\n[1,0,0,[],5]\n', ":2: is no line of a recording"),
        ('{"coldaisle_recording":1}\nnonsense\n', ":2: is no line of a recording"),
        ('{"coldaisle_recording":1}\n5\n', ":2: is no line of a recording"),
        ('{"coldaisle_recording":3}\n', "format 3 is not known"),
        ("[1]\n", "is no recording"),
    ],
)
def test_damage_is_one_clear_line(tmp_path, content, message):
    """A file that is no recording is refused with its name, line and remedy."""
    path = tmp_path / "r"
    path.write_text(content)
    with pytest.raises(ColdaisleError, match=message) as raised:
        ReplayNvml(str(path), FakeClock())
    assert raised.value.remedy


def test_damaged_archive(tmp_path):
    """A broken gzip is refused, not half believed."""
    path = tmp_path / "r.gz"
    path.write_bytes(gzip.compress(b"x" * 100)[:12] + b"garbage" * 9)
    with pytest.raises(ColdaisleError):
        list(lines(str(path)))


def test_two_threads(tmp_path):
    """One thread a GPU records at once: every line is whole and every call is there."""
    recorder = RecordingNvml(vendor(), str(tmp_path / "r"), FakeClock())
    handle = recorder.nvmlDeviceGetHandleByIndex(0)
    threads = [
        threading.Thread(target=lambda: [recorder.nvmlDeviceGetTemperature(handle, 0) for _ in range(500)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()
    calls = [line for line in map(json.loads, lines(str(tmp_path / "r"))) if isinstance(line, list) and line[0] != "f"]
    assert len(calls) == 2001


def calls(path):
    return [line for line in map(json.loads, lines(str(path))) if isinstance(line, list) and line[0] != "f"]


def test_header_says_what_machine(tmp_path):
    """Driver, product and number of GPUs stand in the file; of real time only the day."""
    recorder = RecordingNvml(
        FakeNvml(
            {"nvmlSystemGetDriverVersion": "580.1", "nvmlDeviceGetCount": 1, "nvmlDeviceGetHandleByIndex": "handle"}
            | {"nvmlDeviceGetName": "NVIDIA H200"}
        ),
        str(tmp_path / "r"),
        FakeClock(wall=1_800_000_000.0),
    )
    recorder.nvmlSystemGetDriverVersion()
    recorder.nvmlDeviceGetCount()
    recorder.nvmlDeviceGetName(recorder.nvmlDeviceGetHandleByIndex(0))
    recorder.close()
    objects = [entry for entry in map(json.loads, lines(str(tmp_path / "r"))) if isinstance(entry, dict)]
    assert objects[0] == {"coldaisle_recording": 2, "day": "2027-01-15", "monotonic": 1000.0}
    assert [entry["about"] for entry in objects[1:]] == [{"driver": "580.1"}, {"gpus": 1}, {"product": "NVIDIA H200"}]


def test_labels_and_summary(tmp_path):
    """Marks part a recording; the summary tells each part's length and calls."""
    clock = FakeClock()
    recorder = RecordingNvml(vendor(), str(tmp_path / "r.gz"), clock)
    handle = recorder.nvmlDeviceGetHandleByIndex(0)
    for label, seconds in (("idle", 3), ("matmul", 5)):
        recorder.mark(label)
        for _ in range(seconds):
            recorder.nvmlDeviceGetPowerUsage(handle)
            clock.advance(1)
    recorder.nvmlDeviceGetPowerUsage(handle)
    recorder.close()
    assert summary(str(tmp_path / "r.gz")) == [("", 0.0, 1), ("idle", 3.0, 3), ("matmul", 5.0, 6)]
    ReplayNvml(str(tmp_path / "r.gz"), FakeClock())


def test_field_times_are_kept_without_the_date(tmp_path):
    """Time stamps and latencies come back relative to the first; an unchanged value does not hide a new time."""
    fake = vendor()
    plain = fake.nvmlDeviceGetFieldValues
    stamps = iter((1_796_101_923_494_531, 1_796_101_924_494_531))

    def stamped(handle, ids):
        values = plain(handle, ids)
        values[0].timestamp, values[0].latencyUsec = next(stamps), 7
        return values

    fake.nvmlDeviceGetFieldValues = stamped
    clock = FakeClock()
    recorder = RecordingNvml(fake, str(tmp_path / "r"), clock)
    handle = recorder.nvmlDeviceGetHandleByIndex(0)
    recorder.nvmlDeviceGetFieldValues(handle, [(186, 0)])
    clock.advance(1)
    recorder.nvmlDeviceGetFieldValues(handle, [(186, 0)])
    recorder.close()
    assert "1796101" not in (tmp_path / "r").read_text()
    assert calls(tmp_path / "r")[-1][-1] == [[1_000_001, 7]]
    clock = FakeClock()
    replay = ReplayNvml(str(tmp_path / "r"), clock)
    handle = replay.nvmlDeviceGetHandleByIndex(0)
    seen = []
    for _ in range(2):
        value = replay.nvmlDeviceGetFieldValues(handle, [186])[0]
        seen.append((value.value.uiVal, value.timestamp, value.latencyUsec))
        clock.advance(1)
    assert seen == [(698_500, 1, 7), (698_500, 1_000_001, 7)]


def test_nothing_private_in_arguments_and_processes(tmp_path):
    """A UUID asked by is the anonymous one in the file; pids are numbered, the same one alike, memory stays."""
    process = pynvml.nvmlFriendlyObject({"pid": 31337, "usedGpuMemory": 4096, "name": "secret_job"})
    fake = vendor()
    fake.answers |= {"nvmlDeviceGetHandleByUUID": "handle", "nvmlDeviceGetComputeRunningProcesses": [process, process]}
    recorder = RecordingNvml(fake, str(tmp_path / "r"), FakeClock())
    handle = recorder.nvmlDeviceGetHandleByIndex(0)
    recorder.nvmlDeviceGetHandleByUUID("GPU-other")
    recorder.nvmlDeviceGetUUID(handle)
    recorder.nvmlDeviceGetHandleByUUID("GPU-secret")
    assert recorder.nvmlDeviceGetComputeRunningProcesses(handle)[0].pid == 31337
    recorder.close()
    text = (tmp_path / "r").read_text()
    assert not [word for word in ("secret", "GPU-other", "31337") if word in text]
    replay = ReplayNvml(str(tmp_path / "r"), FakeClock())
    handle = replay.nvmlDeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000")
    first, second = replay.nvmlDeviceGetComputeRunningProcesses(handle)
    assert (first.pid, second.pid, first.usedGpuMemory) == (1, 1, 4096)
    with pytest.raises(pynvml.NVMLError_NotFound):
        replay.nvmlDeviceGetHandleByUUID("GPU-nobody")


def test_full_disk_ends_the_recording_not_the_sampling():
    """A file that cannot be written stops the recording and says why; the vendor's answers go on."""
    recorder = RecordingNvml(vendor(), "/dev/full", FakeClock())
    handle = recorder.nvmlDeviceGetHandleByIndex(0)
    assert recorder.nvmlDeviceGetTemperature(handle, 0) == 61
    assert "No space left" in recorder.failure
    recorder.mark("late")
    recorder.close()


def test_restart_keeps_what_was_recorded(tmp_path):
    """A recorder that comes after another keeps the earlier file; one that comes beside it writes its own."""
    path = str(tmp_path / "r")
    first = RecordingNvml(vendor(), path, FakeClock())
    beside = RecordingNvml(vendor(), path, FakeClock())
    assert (first.path, beside.path) == (path, path + ".1")
    first.nvmlDeviceGetHandleByIndex(0)
    first.close()
    beside.close()
    last = RecordingNvml(vendor(), path, FakeClock())
    last.close()
    assert [len(calls(name)) for name in (path + ".2", path)] == [1, 0]


def test_killed_recorder_leaves_what_it_had(tmp_path):
    """After SIGKILL the file reads up to the last flush."""
    code = f"""
import os, signal, sys
sys.path[:0] = [{str(ROOT / "agent")!r}, {str(ROOT / "tests/drivers")!r}]
import test_recording as t
clock = t.FakeClock()
recorder = t.RecordingNvml(t.vendor(), sys.argv[1], clock)
handle = recorder.nvmlDeviceGetHandleByIndex(0)
for _ in range(10):
    recorder.nvmlDeviceGetTemperature(handle, 0)
    clock.advance(1)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "r.gz")], env=os.environ | {"PYTHONPATH": ""})
    assert done.returncode == -signal.SIGKILL
    assert 7 <= len(calls(tmp_path / "r.gz")) <= 11


def test_events_are_recorded_and_come_once(tmp_path):
    """An Xid is recorded with its GPU and replayed once, at its time; waits in between time out."""
    clock = FakeClock()
    event = pynvml.c_nvmlEventData_t()
    event.eventType, event.eventData = 8, 79
    event.device.contents = pynvml.struct_c_nvmlDevice_t()
    fake = FakeNvml({"nvmlDeviceGetHandleByIndex": event.device})
    answers = iter((error(10), event, error(10)))

    def wait(events, timeout_ms):
        clock.advance(timeout_ms / 1000)
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    fake.nvmlEventSetWait_v2 = wait
    recorder = RecordingNvml(fake, str(tmp_path / "r"), clock)
    recorder.nvmlDeviceGetHandleByIndex(0)
    seen = []
    for kind in ("recorded", "replayed"):
        source = recorder if kind == "recorded" else ReplayNvml(str(tmp_path / "r"), clock, sleep=clock.advance)
        start = clock.monotonic()
        for _ in range(3):
            try:
                got = source.nvmlEventSetWait_v2(None, 1000)
                index = source.nvmlDeviceGetIndex(got.device) if source is not recorder else 0
                seen.append((index, got.eventType, got.eventData, round(clock.monotonic() - start, 3)))
            except pynvml.NVMLError_Timeout:
                seen.append("timeout")
        recorder.close()
    assert seen == ["timeout", (0, 8, 79, 2.0), "timeout"] * 2


def test_named_arguments_are_arguments(tmp_path):
    """A call with a keyword is the same call without."""
    fake = vendor()
    fake.nvmlDeviceGetMemoryInfo = lambda handle, version=None: version
    recorder = RecordingNvml(fake, str(tmp_path / "r"), FakeClock())
    handle = recorder.nvmlDeviceGetHandleByIndex(0)
    recorder.nvmlDeviceGetMemoryInfo(handle, version=7)
    recorder.close()
    replay = ReplayNvml(str(tmp_path / "r"), FakeClock())
    assert replay.nvmlDeviceGetMemoryInfo(replay.nvmlDeviceGetHandleByIndex(0), 7) == 7
    assert replay.nvmlErrorString(15) == "GPU is lost"
    assert replay.nvmlMemory_v2 == pynvml.nvmlMemory_v2


def test_nan_of_a_call_is_a_number_again(tmp_path):
    """NaN from a plain call comes back as a float: as text it would break the reader's arithmetic."""
    clock = FakeClock()
    vendor = FakeNvml({"nvmlDeviceGetHandleByIndex": "gpu", "nvmlDeviceGetPowerUsage": math.nan})
    recorder = RecordingNvml(vendor, str(tmp_path / "r"), clock)
    recorder.nvmlDeviceGetPowerUsage(recorder.nvmlDeviceGetHandleByIndex(0))
    recorder.close()
    replay = ReplayNvml(str(tmp_path / "r"), clock)
    assert math.isnan(replay.nvmlDeviceGetPowerUsage(replay.nvmlDeviceGetHandleByIndex(0)))


def test_mark_after_close_is_ignored(tmp_path):
    """A label that comes after the end of a packed recording is dropped, as calls are."""
    path = str(tmp_path / "r.gz")
    recorder = RecordingNvml(FakeNvml(), path, FakeClock())
    recorder.close()
    recorder.mark("late")
    assert summary(path) == [("", 0.0, 0)]
