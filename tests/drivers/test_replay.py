"""Replays: each call answered by what was recorded at its time, in any batch, with its errors and events."""

import json
import math

import pynvml
import pytest

from coldaisle.domain.clock import FakeClock
from coldaisle.drivers.recording import ReplayNvml


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


def write(path, *entries):
    """A recording by hand: functions are numbered as they come."""
    names = {}
    rows = [{"coldaisle_recording": 2}]
    for entry in entries:
        if isinstance(entry, list):
            name = entry[1]
            if name not in names:
                names[name] = len(names)
                rows.append(["f", names[name], name])
            entry = [entry[0], names[name], *entry[2:]]
        rows.append(entry)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


HANDLE = [0, "nvmlDeviceGetHandleByIndex", -1, [0], None]


def test_replay_answers_other_batches(tmp_path):
    """Fields and metrics come one by one when a newer driver asks for them in another batch."""
    path = write(
        tmp_path / "r",
        HANDLE,
        [0, "nvmlDeviceGetFieldValues", 0, [[[82, 0], [186, 0]]], [[82, 0, 0, 1, 40, 5, 1], [186, 0, 0, 1, 700, 5, 1]]],
        [0, "nvmlDeviceGetFieldValues", 0, [[[194, 0]]], [[194, 0, 0, 5, -2]]],
        [0, "nvmlGpmSampleGet", 0, [None], None],
        [0, "nvmlGpmMetricsGet", 0, [[2, 10]], [[2, 0, 93.5], [10, 0, "nan"]]],
        [1000, "nvmlDeviceGetFieldValues", 0, [[[82, 0], [186, 0]]], [[9, 1], [186, 0, 0, 1, 650, 9, 1]]],
    )
    clock = FakeClock()
    replay = ReplayNvml(path, clock)
    handle = replay.nvmlDeviceGetHandleByIndex(0)
    clock.advance(2)
    values = replay.nvmlDeviceGetFieldValues(handle, [194, (82, 0), 186, (138, 4294967295)])
    assert [(v.fieldId, v.nvmlReturn, v.timestamp) for v in values] == [
        (194, 0, 0),
        (82, 0, 9),
        (186, 0, 9),
        (138, 3, 0),
    ]
    assert (values[0].value.siVal, values[1].value.uiVal, values[2].value.uiVal) == (-2, 40, 650)
    sample = replay.nvmlGpmSampleAlloc()
    replay.nvmlGpmSampleGet(handle, sample)
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.sample2, request.numMetrics = sample, 3
    for place, metric in enumerate((10, 2, 60)):
        request.metrics[place].metricId = metric
    replay.nvmlGpmMetricsGet(request)
    assert math.isnan(request.metrics[0].value)
    assert [(request.metrics[n].nvmlReturn, request.metrics[n].value) for n in (1, 2)] == [(0, 93.5), (3, 0.0)]


def test_replay_of_a_machine_in_trouble(tmp_path):
    """A mismatch at init, a lost GPU's samples and its batches raise what was recorded."""
    path = write(
        tmp_path / "r",
        [0, "nvmlInit", -1, [], {"e": 18}],
        HANDLE,
        [0, "nvmlGpmSampleGet", 0, [None], {"e": 15}],
        [0, "nvmlDeviceGetFieldValues", 0, [[[82, 0]]], {"e": 15}],
    )
    replay = ReplayNvml(path, FakeClock())
    handle = replay.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(pynvml.NVMLError_LibRmVersionMismatch):
        replay.nvmlInit()
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        replay.nvmlGpmSampleGet(handle, replay.nvmlGpmSampleAlloc())
    for batch in ([82], [82, 186]):
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            replay.nvmlDeviceGetFieldValues(handle, batch)


def test_events_come_again_in_a_loop(tmp_path):
    """Each round of a loop brings its events anew."""
    xid = {"device": 0, "eventType": 8, "eventData": 31, "gpuInstanceId": 0, "computeInstanceId": 0}
    path = write(tmp_path / "r", HANDLE, [500, "nvmlEventSetWait_v2", -1, [None, 1000], xid], [1000, *HANDLE[1:]])
    clock = FakeClock()
    replay = ReplayNvml(path, clock, loop=True, sleep=clock.advance)
    start = clock.monotonic()
    times = []
    while clock.monotonic() - start < 5:
        try:
            assert replay.nvmlEventSetWait_v2(None, 1000).device == replay.nvmlDeviceGetHandleByIndex(0)
            times.append(clock.monotonic() - start)
        except pynvml.NVMLError_Timeout:
            continue
    assert times == [0.5, 2.5, 4.5]


def test_speed_and_determinism(tmp_path):
    """The same clock steps give the same answers, twice as fast at speed 2."""
    path = write(tmp_path / "r", HANDLE, *[[n * 1000, "nvmlDeviceGetPowerUsage", 0, [], n] for n in range(9)])

    def seen(speed):
        clock = FakeClock()
        replay = ReplayNvml(path, clock, speed)
        handle = replay.nvmlDeviceGetHandleByIndex(0)
        answers = []
        for step in (0.0, 0.4, 0.7, 1.5, 9.0):
            clock.advance(step)
            answers.append(replay.nvmlDeviceGetPowerUsage(handle))
        return answers

    assert seen(1.0) == seen(1.0) == [0, 0, 1, 2, 8]
    assert seen(2.0) == [0, 0, 2, 5, 8]
