"""What the simulated NVML answers when all is well: the same shapes, types and errors as a real H200 or A100."""

import json
import os
import subprocess
import sys
import threading

import pynvml
import pytest
from tests.simulation.answers import code_of, field, gpm

from coldaisle.simulation import profiles
from coldaisle.simulation.machine import GPU, Reader
from coldaisle.simulation.nvml import SimulatedNvml


def test_constants_and_structs_are_pynvmls():
    """Constants, classes and structs come from pynvml; functions that are not simulated say so and load nothing."""
    vendor = SimulatedNvml("/nonexistent")
    assert vendor.NVMLError is pynvml.NVMLError
    assert vendor.NVML_ERROR_GPU_IS_LOST == 15
    assert vendor.c_nvmlGpmMetricsGet_t is pynvml.c_nvmlGpmMetricsGet_t
    assert code_of(vendor.nvmlDeviceGetFanSpeed, None) == 3
    assert pynvml.nvmlLib is None
    assert not hasattr(vendor, "nvmlNoSuchThing")


def test_session_rules(machine):
    """Nothing answers before nvmlInit or after the last nvmlShutdown; sessions count."""
    vendor = SimulatedNvml(machine.directory)
    assert code_of(vendor.nvmlDeviceGetCount) == 1
    assert code_of(vendor.nvmlShutdown) == 1
    vendor.nvmlInit()
    vendor.nvmlInit()
    vendor.nvmlShutdown()
    handle = vendor.nvmlDeviceGetHandleByIndex(0)
    vendor.nvmlShutdown()
    assert code_of(vendor.nvmlDeviceGetTemperature, handle, 0) == 1


def test_no_simulator_is_no_driver(tmp_path):
    """A directory without a machine is a driver that is not loaded, not a traceback."""
    assert code_of(SimulatedNvml(str(tmp_path)).nvmlInit) == 9


@pytest.mark.parametrize("profile", profiles.PROFILES, ids=lambda profile: profile.name)
def test_identity(build, profile):
    """Each product says what it is: names, sizes, distinct UUIDs, serials and PCI addresses."""
    vendor = build(profile.name, 8).open()
    handles = [vendor.nvmlDeviceGetHandleByIndex(index) for index in range(vendor.nvmlDeviceGetCount())]
    assert len(handles) == 8
    for name in ("nvmlDeviceGetUUID", "nvmlDeviceGetSerial", "nvmlDeviceGetMinorNumber"):
        assert len({getattr(vendor, name)(handle) for handle in handles}) == 8
    assert len({vendor.nvmlDeviceGetPciInfo(handle).busId for handle in handles}) == 8
    handle = vendor.nvmlDeviceGetHandleByUUID(vendor.nvmlDeviceGetUUID(handles[5]))
    assert vendor.nvmlDeviceGetIndex(handle) == 5
    assert vendor.nvmlDeviceGetName(handle) == profile.gpu_name
    assert vendor.nvmlDeviceGetArchitecture(handle) == profile.architecture
    memory = vendor.nvmlDeviceGetMemoryInfo(handle, vendor.nvmlMemory_v2)
    assert memory.total == profile.memory_bytes == memory.reserved + memory.used + memory.free
    assert code_of(vendor.nvmlDeviceGetHandleByIndex, 8) == 2
    assert code_of(vendor.nvmlDeviceGetHandleByUUID, "GPU-none") == 6


def test_a_load_is_seen_by_every_sensor(machine):
    """Under a matmul power, temperature, clock, reasons, utilization, energy and GPM tell one story."""
    vendor = machine.open()
    handle = vendor.nvmlDeviceGetHandleByIndex(1)
    machine.client.load("compute_bf16_matmul", 1)
    machine.client.advance(60)
    energy = vendor.nvmlDeviceGetTotalEnergyConsumption(handle)
    metrics = gpm(vendor, handle, machine, 10)
    power = vendor.nvmlDeviceGetPowerUsage(handle)
    assert power == pytest.approx(692_000, rel=0.02)
    assert vendor.nvmlDeviceGetTotalEnergyConsumption(handle) - energy == pytest.approx(power * 10, rel=0.02)
    assert 55 <= vendor.nvmlDeviceGetTemperature(handle, 0) <= 68
    assert vendor.nvmlDeviceGetMarginTemperature(handle) == 87 - vendor.nvmlDeviceGetTemperature(handle, 0)
    assert 1400 < vendor.nvmlDeviceGetClockInfo(handle, 1) < 1560
    assert vendor.nvmlDeviceGetCurrentClocksEventReasons(handle) == 4
    assert vendor.nvmlDeviceGetUtilizationRates(handle).gpu >= 97
    assert metrics[2] == (0, pytest.approx(95.6, abs=1))
    assert metrics[5] == metrics[7] == (0, pytest.approx(92.7, abs=1))
    assert metrics[8] == (0, 0.0)
    assert len(vendor.nvmlDeviceGetComputeRunningProcesses(handle)) == 1


def test_nvlink_counters_agree(machine):
    """Under an all-reduce GPM's NVLink rates, the per-link rates and the KiB counters are the same bytes."""
    vendor = machine.open()
    handle = vendor.nvmlDeviceGetHandleByIndex(0)
    machine.client.load("nccl_allreduce")
    machine.client.advance(5)
    _, _, before = field(vendor, handle, 138, 0xFFFFFFFF)
    metrics = gpm(vendor, handle, machine, 10)
    _, kind, after = field(vendor, handle, 138, 0xFFFFFFFF)
    assert kind == 3
    rate = metrics[61][1] * 1048576
    assert rate == pytest.approx(351e9, rel=0.05)
    assert (after - before) * 1024 / 10 == pytest.approx(rate, rel=0.01)
    assert metrics[62][1] * 18 == pytest.approx(metrics[60][1], rel=0.01)
    assert field(vendor, handle, 138, 18)[0] == 2


def test_gpm_without_time_has_no_data(machine):
    """Two samples of the same moment give no rate: each metric says so, none is 0."""
    vendor = machine.open()
    metrics = gpm(vendor, vendor.nvmlDeviceGetHandleByIndex(0), machine, 0)
    assert {code for code, _ in metrics.values()} == {21}


def test_freed_sample_is_refused(machine):
    """A sample that was freed is an invalid argument, and two GPUs' samples cannot be mixed."""
    vendor = machine.open()
    first, second = vendor.nvmlGpmSampleAlloc(), vendor.nvmlGpmSampleAlloc()
    handles = [vendor.nvmlDeviceGetHandleByIndex(index) for index in (0, 1)]
    vendor.nvmlGpmSampleGet(handles[0], first)
    vendor.nvmlGpmSampleGet(handles[1], second)
    request = vendor.c_nvmlGpmMetricsGet_t()
    request.sample1, request.sample2, request.numMetrics = first, second, 1
    assert code_of(vendor.nvmlGpmMetricsGet, request) == 2
    vendor.nvmlGpmSampleFree(first)
    assert code_of(vendor.nvmlGpmSampleGet, handles[0], first) == 2
    assert code_of(vendor.nvmlGpmSampleFree, first) == 2


def test_value_types_of_a_real_h200(machine):
    """Field values carry the types that driver 580 gives, signed offsets included; unknown ids are refused each."""
    vendor = machine.open()
    handle = vendor.nvmlDeviceGetHandleByIndex(0)
    assert field(vendor, handle, 194) == (0, 5, -2)
    assert field(vendor, handle, 193) == (0, 5, -8)
    assert field(vendor, handle, 190) == (0, 1, 700_000)
    assert field(vendor, handle, 74)[:2] == (0, 3)
    assert field(vendor, handle, 82)[:2] == (0, 1)
    assert field(vendor, handle, 92)[0] == 3
    assert field(vendor, handle, 5000)[0] == 2
    assert vendor.nvmlDeviceGetFieldValues(handle, [83])[0].nvmlReturn == 0


def test_a100_has_neither_margin_nor_gpm(build):
    """The A100 answers NotSupported for T.Limit, GPM and the fields that came later; thresholds are absolute."""
    machine = build("dgx-a100")
    vendor = machine.open()
    handle = vendor.nvmlDeviceGetHandleByIndex(0)
    assert code_of(vendor.nvmlDeviceGetMarginTemperature, handle) == 3
    assert not vendor.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice
    assert code_of(vendor.nvmlGpmSampleGet, handle, vendor.nvmlGpmSampleAlloc()) == 3
    assert [field(vendor, handle, number)[0] for number in (185, 186, 193, 194, 269)] == [3, 0, 3, 3, 3]
    assert [vendor.nvmlDeviceGetTemperatureThreshold(handle, kind) for kind in range(4)] == [92, 87, 95, 83]
    assert code_of(vendor.nvmlDeviceGetTemperatureThreshold, handle, 7) == 3


def test_a_cap_written_elsewhere_is_felt_here(simulator, tmp_path):
    """Another process sets a power limit; this one sees limit, power and clock follow."""
    assert simulator("--profile", "dgx-h200", "--gpus", "2").stdout.readline() == "ready\n"
    directory = str(tmp_path / "dgx")
    vendor = SimulatedNvml(directory)
    vendor.nvmlInit()
    handle = vendor.nvmlDeviceGetHandleByIndex(1)
    from coldaisle.simulation.control import Client

    with Client(directory) as client:
        client.load("train_healthy_bf16")
        client.advance(20)
        assert vendor.nvmlDeviceGetPowerUsage(handle) > 650_000
        script = (
            "import sys; from coldaisle.simulation.nvml import SimulatedNvml; n = SimulatedNvml(sys.argv[1]); n.nvmlInit()\n"
            "n.nvmlDeviceSetPowerManagementLimit(n.nvmlDeviceGetHandleByIndex(1), 450_000); n.nvmlShutdown()"
        )
        subprocess.run([sys.executable, "-c", script, directory], check=True, timeout=60)
        assert vendor.nvmlDeviceGetPowerManagementLimit(handle) == 450_000
        client.advance(20)
        assert vendor.nvmlDeviceGetPowerUsage(handle) < 455_000
        assert vendor.nvmlDeviceGetPowerManagementLimit(vendor.nvmlDeviceGetHandleByIndex(0)) == 700_000
    vendor.nvmlShutdown()


def test_setters_keep_the_constraints(machine):
    """A limit outside the constraints and an impossible clock range are invalid arguments and change nothing."""
    vendor = machine.open()
    handle = vendor.nvmlDeviceGetHandleByIndex(0)
    low, high = vendor.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    for milliwatts in (low - 1000, high + 1000):
        assert code_of(vendor.nvmlDeviceSetPowerManagementLimit, handle, milliwatts) == 2
    assert code_of(vendor.nvmlDeviceSetGpuLockedClocks, handle, 1500, 345) == 2
    assert vendor.nvmlDeviceGetPowerManagementLimit(handle) == 700_000
    machine.client.load("train_fp32", 0)
    vendor.nvmlDeviceSetGpuLockedClocks(handle, 345, 1500)
    machine.client.advance(2)
    assert vendor.nvmlDeviceGetClockInfo(handle, 1) == 1500
    vendor.nvmlDeviceResetGpuLockedClocks(handle)
    machine.client.advance(2)
    assert vendor.nvmlDeviceGetClockInfo(handle, 1) == 1980


def test_reads_do_no_io(machine, monkeypatch):
    """No read opens, connects, sends or sleeps: what it costs is Python's, not the machine's process."""
    vendor = machine.open()
    handle = vendor.nvmlDeviceGetHandleByIndex(0)
    machine.client.advance(1)

    def never(*args, **kwargs):
        raise AssertionError("a read did I/O")

    for name in ("coldaisle.simulation.control.Client._connection", "time.sleep", "os.open", "os.read"):
        monkeypatch.setattr(name, never)
    assert vendor.nvmlDeviceGetTemperature(handle, 0) > 0
    assert vendor.nvmlDeviceGetPowerUsage(handle) > 0
    assert all(
        answer.nvmlReturn == 0 for answer in vendor.nvmlDeviceGetFieldValues(handle, [(186, 0), (82, 0), (74, 0)])
    )
    assert vendor.nvmlGpmSampleGet(handle, vendor.nvmlGpmSampleAlloc())
    assert vendor._client is None


def test_snapshots_are_never_torn(machine):
    """While the writer writes without pause, accumulators read together belong together."""
    board = machine.node.boards[0]
    stop = threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            number += 1
            board.gpu.uptime = float(number)
            board.gpu.activity = [float(number)] * 13
            board.gpu.bytes = [float(number)] * 4
            machine.node.publish()

    reader = Reader(machine.directory)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3000):
            uptime, counters = reader.snapshot(0)
            assert set(counters) in ({uptime}, {0.0})
    finally:
        stop.set()
        writer.join()
        reader.close()


def test_events_bring_xids(machine):
    """A registered GPU's Xid arrives with its handle; others' do not; silence is a time-out."""
    vendor = machine.open()
    handle = vendor.nvmlDeviceGetHandleByIndex(2)
    events = vendor.nvmlEventSetCreate()
    assert vendor.nvmlDeviceGetSupportedEventTypes(handle) == 8
    vendor.nvmlDeviceRegisterEvents(handle, 8, events)
    machine.client.fault("xid", gpu=0, xid=13, text="other")
    machine.client.fault("xid", gpu=2, xid=48, text="DBE")
    data = vendor.nvmlEventSetWait_v2(events, 5000)
    assert (data.eventType, data.eventData) == (8, 48)
    assert vendor.nvmlDeviceGetIndex(data.device) == 2
    assert code_of(vendor.nvmlEventSetWait_v2, events, 0) == 10
    vendor.nvmlEventSetFree(events)


def test_layout_has_room():
    """Every slot of a GPU's record has its own place."""
    assert len(set(GPU.values())) == len(GPU)


def test_needs_no_heavy_modules():
    """The reading side loads none of what the vendor child's memory budget forbids."""
    heavy = ["dataclasses", "asyncio", "pydantic", "prometheus_client", "psutil", "ruamel", "logging"]
    script = f"import sys, json, coldaisle.simulation.nvml; print(json.dumps([m for m in {heavy} if m in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, timeout=60, env=dict(os.environ)
    )
    assert json.loads(done.stdout) == []
