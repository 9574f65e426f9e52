"""Recordings: what was answered comes back, nothing private is in the file, and damage is one clear line."""

import gzip
import json
import math
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
from coldaisle.drivers.recording import RecordingNvml, ReplayNvml, lines

UTILIZATION = type("Utilization", (pynvml.c_nvmlUtilization_t,), {})


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
        threading.Thread(target=lambda: [recorder.nvmlDeviceGetTemperature(handle, 0) for _ in range(500)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()
    calls = [line for line in map(json.loads, lines(str(tmp_path / "r"))) if isinstance(line, list) and line[0] != "f"]
    assert len(calls) == 2001


def test_replay_time_and_loop(tmp_path):
    """The latest answer at or before the replay's time is given; a loop begins again."""
    path = tmp_path / "r"
    path.write_text(
        '{"coldaisle_recording":1}\n["f",0,"nvmlDeviceGetHandleByIndex"]\n["f",1,"nvmlDeviceGetTemperature"]\n'
        "[0,0,-1,[0],null]\n[0,1,0,[0],40]\n[1000,1,0,[0],50]\n[2000,1,0,[0],60]\n"
    )
    clock = FakeClock()
    replay = ReplayNvml(str(path), clock, loop=True)
    handle = replay.nvmlDeviceGetHandleByIndex(0)
    seen = []
    for _ in range(5):
        seen.append(replay.nvmlDeviceGetTemperature(handle, 0))
        clock.advance(1)
    assert seen == [40, 50, 60, 40, 50]
