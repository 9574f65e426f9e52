"""Each fault answers through the simulated NVML what the real one answers, and goes away when it is cleared."""

import math
import signal
import subprocess
import sys
import threading
import time

import pynvml
import pytest
from tests.simulation.answers import code_of, field, gpm

from coldaisle.simulation.control import Client, ControlError
from coldaisle.simulation.faults import KINDS
from coldaisle.simulation.nvml import SimulatedNvml


def temperature(vendor, handle):
    return vendor.nvmlDeviceGetTemperature(handle, 0)


@pytest.fixture
def vendor(machine):
    return machine.open()


@pytest.mark.parametrize(
    ("kind", "code", "xid"),
    [("lost", 15, 79), ("reset_required", 16, 95), ("hidden", 17, 0), ("unknown_error", 999, 0), ("error", 999, 0)],
)
def test_dead_gpus(machine, vendor, kind, code, xid):
    """Every call on the GPU and its look-up answer the code, the Xid is in the kernel log, the others work on."""
    handles = [vendor.nvmlDeviceGetHandleByIndex(index) for index in range(4)]
    machine.client.fault(kind, gpu=2)
    assert code_of(temperature, vendor, handles[2]) == code
    assert code_of(vendor.nvmlDeviceGetFieldValues, handles[2], [(82, 0)]) == code
    assert code_of(vendor.nvmlDeviceGetHandleByIndex, 2) == code
    assert code_of(vendor.nvmlDeviceSetPowerManagementLimit, handles[2], 500_000) == code
    assert vendor.nvmlDeviceGetCount() == 4
    assert all(temperature(vendor, handles[index]) > 0 for index in (0, 1, 3))
    log = machine.kmsg.getvalue()
    assert (f"NVRM: Xid (PCI:0000:52:00): {xid}," in log) == bool(xid)
    machine.client.clear(gpu=2)
    machine.client.advance(1)
    assert temperature(vendor, handles[2]) > 0


def test_kernel_log_format(machine):
    """The kernel log is in /dev/kmsg's record format with rising sequence numbers."""
    machine.client.fault("lost", gpu=0)
    lines = machine.kmsg.getvalue().splitlines()
    heads = [line.split(";")[0].split(",") for line in lines]
    assert [int(head[1]) for head in heads] == list(range(len(lines)))
    assert all((int(head[2]), head[3]) == (12_500_000, "-") for head in heads)
    assert "GPU has fallen off the bus" in lines[-1]


def test_missing_gpu(machine, vendor):
    """A GPU that did not initialise is not counted, the others move up, its old handle is lost."""
    third = vendor.nvmlDeviceGetHandleByIndex(2)
    last = vendor.nvmlDeviceGetUUID(vendor.nvmlDeviceGetHandleByIndex(3))
    machine.client.fault("missing", gpu=2)
    assert vendor.nvmlDeviceGetCount() == 3
    assert vendor.nvmlDeviceGetUUID(vendor.nvmlDeviceGetHandleByIndex(2)) == last
    assert code_of(vendor.nvmlDeviceGetHandleByIndex, 3) == 2
    assert code_of(temperature, vendor, third) == 15
    assert "RmInitAdapter failed" in machine.kmsg.getvalue()


@pytest.mark.parametrize(("kind", "code"), [("driver_mismatch", 18), ("driver_absent", 9), ("library_absent", 12)])
def test_driver_faults(machine, vendor, kind, code):
    """nvmlInit fails with the code until the fault ends; a mismatch leaves open sessions alone, an unload does not."""
    handle = vendor.nvmlDeviceGetHandleByIndex(0)
    machine.client.fault(kind, seconds=30)
    assert code_of(machine.open) == code
    if kind == "driver_absent":
        assert code_of(vendor.nvmlDeviceGetCount) == 9
        assert code_of(temperature, vendor, handle) == 9
    else:
        assert temperature(vendor, handle) > 0
    machine.client.advance(31)
    assert machine.open().nvmlDeviceGetCount() == 4


@pytest.mark.parametrize("kind", ["hang", "hang_all", "hang_init"])
def test_hangs(machine, vendor, kind):
    """A hung call blocks inside the call with the GIL released, alone where it should be, until the hang ends."""
    handle, other = vendor.nvmlDeviceGetHandleByIndex(1), vendor.nvmlDeviceGetHandleByIndex(0)
    machine.client.fault(kind, gpu=1 if kind == "hang" else None, seconds=60)
    entered, done = threading.Event(), threading.Event()

    def call():
        entered.set()
        machine.open() if kind == "hang_init" else temperature(vendor, handle)
        done.set()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    assert entered.wait(10)
    if kind != "hang_all":
        assert temperature(vendor, other) > 0
    machine.client.advance(59)
    assert not done.is_set()
    machine.client.advance(2)
    assert done.wait(10)
    thread.join(10)


def test_gsp_hang(machine, vendor):
    """A wedged GSP logs Xid 119, blocks for six seconds, then everything on the GPU is an unknown error."""
    handle = vendor.nvmlDeviceGetHandleByIndex(1)
    machine.client.fault("gsp_hang", gpu=1)
    assert "119" in machine.kmsg.getvalue()
    machine.client.advance(7)
    assert code_of(temperature, vendor, handle) == 999
    machine.client.clear(gpu=1)
    assert temperature(vendor, handle) > 0


def test_segfault_is_real(machine):
    """A call on the GPU ends the calling process by SIGSEGV; calls on others do not."""
    script = (
        "import sys; from coldaisle.simulation.nvml import SimulatedNvml; n = SimulatedNvml(sys.argv[1]); n.nvmlInit()\n"
        "n.nvmlDeviceGetHandleByIndex(0); print('alive', flush=True); n.nvmlDeviceGetHandleByIndex(2); print('never')"
    )
    machine.client.fault("segfault", gpu=2)
    done = subprocess.run(
        [sys.executable, "-c", script, machine.directory], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "alive\n")


def test_glitches(machine, vendor):
    """A glitch spoils exactly so many reads of its sensor, for each reader, and then it is over."""
    handle = vendor.nvmlDeviceGetHandleByIndex(0)
    machine.client.load("train_healthy_bf16", 0)
    machine.client.advance(30)
    machine.client.fault("glitch", gpu=0, sensor="temperature", reads=2)
    found = [temperature(vendor, handle) for _ in range(3)]
    assert found[:2] == [255, 255]
    assert found[2] < 100
    other = machine.open()
    assert temperature(other, other.nvmlDeviceGetHandleByIndex(0)) == 255
    machine.client.fault("glitch", gpu=0, sensor="power")
    assert field(vendor, handle, 186)[2] == 0
    assert field(vendor, handle, 186)[2] > 0
    energy = vendor.nvmlDeviceGetTotalEnergyConsumption(handle)
    machine.client.fault("glitch", gpu=0, sensor="energy")
    assert vendor.nvmlDeviceGetTotalEnergyConsumption(handle) < energy
    assert vendor.nvmlDeviceGetTotalEnergyConsumption(handle) >= energy
    machine.client.fault("glitch", gpu=0, sensor="gpm", reads=2)
    metrics = gpm(vendor, handle, machine)
    assert all(code == 0 and math.isnan(value) for code, value in metrics.values())
    assert not math.isnan(gpm(vendor, handle, machine)[2][1])


def test_ecc_and_remapping(machine, vendor):
    """Corrected errors count up in a storm; an uncorrected one leaves a pending remap; a failed remap asks for reset."""
    handle = vendor.nvmlDeviceGetHandleByIndex(3)
    machine.client.fault("ecc_storm", gpu=3, rate=100)
    machine.client.advance(10)
    assert vendor.nvmlDeviceGetTotalEccErrors(handle, 0, 0) == pytest.approx(1000, abs=20)
    assert field(vendor, handle, 5)[2] == vendor.nvmlDeviceGetTotalEccErrors(handle, 0, 1)
    machine.client.fault("ecc_uncorrected", gpu=3)
    assert vendor.nvmlDeviceGetTotalEccErrors(handle, 1, 0) == 1
    assert vendor.nvmlDeviceGetRemappedRows(handle) == (0, 1, 1, 0)
    assert field(vendor, handle, 230)[2] == 4
    machine.client.fault("remap_failure", gpu=3)
    assert vendor.nvmlDeviceGetRemappedRows(handle)[3] == 1
    assert field(vendor, handle, 230)[2] == 1
    assert vendor.nvmlDeviceGetRowRemapperHistogram(handle).none == 1
    log = machine.kmsg.getvalue()
    assert all(f"): {xid}," in log for xid in (63, 64, 94))


def test_operators_reset(machine, vendor):
    """A GPU reset answers 16 for its time, then volatile counters, energy and the limit are as after a driver load."""
    handle = vendor.nvmlDeviceGetHandleByIndex(0)
    vendor.nvmlDeviceSetPowerManagementLimit(handle, 500_000)
    machine.client.advance(60)
    energy = vendor.nvmlDeviceGetTotalEnergyConsumption(handle)
    machine.client.fault("gpu_reset", gpu=0, seconds=10)
    assert code_of(temperature, vendor, handle) == 16
    machine.client.advance(11)
    assert vendor.nvmlDeviceGetTotalEnergyConsumption(handle) < energy
    assert vendor.nvmlDeviceGetPowerManagementLimit(handle) == 700_000


def test_bmc_cap_and_foreign_writer(machine, vendor):
    """A BMC cap enforces less than requested; a foreign writer changes what is requested and it stays."""
    handle = vendor.nvmlDeviceGetHandleByIndex(0)
    machine.client.load("compute_bf16_matmul")
    machine.client.fault("bmc_cap", watts=500)
    machine.client.advance(20)
    assert vendor.nvmlDeviceGetPowerManagementLimit(handle) == 700_000
    assert vendor.nvmlDeviceGetEnforcedPowerLimit(handle) == 500_000
    assert vendor.nvmlDeviceGetPowerUsage(handle) < 505_000
    machine.client.clear()
    machine.client.fault("foreign_writer", gpu=0, watts=630)
    assert vendor.nvmlDeviceGetPowerManagementLimit(handle) == 630_000
    assert vendor.nvmlDeviceGetEnforcedPowerLimit(handle) == 630_000


def test_refused_and_ignored_setters(machine, vendor):
    """A setter is refused with its code, or claims success and changes nothing."""
    handle = vendor.nvmlDeviceGetHandleByIndex(0)
    machine.client.fault("setter_refused", code=4)
    assert code_of(vendor.nvmlDeviceSetPowerManagementLimit, handle, 500_000) == 4
    machine.client.clear(kind="setter_refused")
    machine.client.fault("setter_ignored", gpu=0)
    vendor.nvmlDeviceSetPowerManagementLimit(handle, 500_000)
    assert vendor.nvmlDeviceGetPowerManagementLimit(handle) == 700_000


def test_gpm_denied(machine, vendor):
    """Profiling that is for administrators only answers 4 to samples; everything else works."""
    handle = vendor.nvmlDeviceGetHandleByIndex(0)
    machine.client.fault("gpm_denied")
    assert code_of(vendor.nvmlGpmSampleGet, handle, vendor.nvmlGpmSampleAlloc()) == 4
    assert temperature(vendor, handle) > 0


def test_pcie_downgraded(machine, vendor):
    """The current link is slower than the maximum until it is cleared."""
    handle = vendor.nvmlDeviceGetHandleByIndex(0)
    machine.client.fault("pcie_downgraded", gpu=0, generation=1, width=4)
    link = (vendor.nvmlDeviceGetCurrPcieLinkGeneration, vendor.nvmlDeviceGetCurrPcieLinkWidth)
    assert [read(handle) for read in link] == [1, 4]
    assert vendor.nvmlDeviceGetMaxPcieLinkGeneration(handle) == 5
    machine.client.clear()
    assert [read(handle) for read in link] == [5, 16]


def test_heat(machine, vendor):
    """A hot inlet warms every GPU alike, a bad cold plate one, hot memory one GPU's memory only."""
    handles = [vendor.nvmlDeviceGetHandleByIndex(index) for index in range(4)]
    machine.client.load("train_healthy_bf16")
    machine.client.advance(120)
    before = [temperature(vendor, handle) for handle in handles]
    machine.client.fault("hot_inlet", celsius=35)
    machine.client.advance(120)
    rise = [temperature(vendor, handle) - old for handle, old in zip(handles, before, strict=True)]
    assert all(8 <= degrees <= 12 for degrees in rise)
    machine.client.clear()
    machine.client.fault("hot_gpu", gpu=1, factor=1.8)
    machine.client.fault("hot_memory", gpu=2, celsius=30)
    machine.client.advance(120)
    rise = [temperature(vendor, handle) - old for handle, old in zip(handles, before, strict=True)]
    assert rise[1] > 10
    assert max(abs(rise[0]), abs(rise[2]), abs(rise[3])) <= 2
    assert field(vendor, handles[2], 82)[2] > field(vendor, handles[0], 82)[2] + 25


def test_shutdown_temperature_loses_the_gpu(machine, vendor):
    """Past its shutdown temperature a GPU is off the bus, whatever the clocks did."""
    handle = vendor.nvmlDeviceGetHandleByIndex(0)
    machine.client.load("compute_fp32_matmul")
    machine.client.fault("hot_gpu", gpu=0, factor=20)
    machine.client.advance(60)
    assert code_of(temperature, vendor, handle) == 15
    assert "thermal shutdown" in machine.kmsg.getvalue()


def test_power_brake(machine, vendor):
    """The brake shows bits 0x8c on all GPUs and its counter runs; temperatures stay normal."""
    handles = [vendor.nvmlDeviceGetHandleByIndex(index) for index in range(4)]
    machine.client.load("train_healthy_bf16")
    machine.client.advance(30)
    machine.client.fault("power_brake", seconds=10)
    machine.client.advance(5)
    assert {vendor.nvmlDeviceGetCurrentClocksEventReasons(handle) for handle in handles} == {0x8C}
    machine.client.advance(10)
    assert field(vendor, handles[0], 271)[2] == pytest.approx(10e9, rel=0.05)
    assert vendor.nvmlDeviceGetCurrentClocksEventReasons(handles[0]) == 4


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_fault_can_be_cleared(machine, vendor, kind):
    """After any fault and `clear` the node works as a whole again."""
    machine.client.fault(kind, gpu=None if KINDS[kind].scope == "node" else 1)
    machine.client.clear()
    machine.client.advance(1)
    assert machine.client.state()["faults"] == []
    fresh = machine.open()
    assert fresh.nvmlDeviceGetCount() == 4
    for index in range(4):
        assert field(fresh, fresh.nvmlDeviceGetHandleByIndex(index), 186)[0] == 0


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"op": "fault", "kind": "flood"}, "no fault is called"),
        ({"op": "fault", "kind": "lost"}, "needs a GPU"),
        ({"op": "fault", "kind": "lost", "gpu": 9}, "no GPU 9"),
        ({"op": "fault", "kind": "hang_all", "gpu": 1}, "whole node"),
        ({"op": "fault", "kind": "hot_gpu", "gpu": 1, "colour": 3}, 'knows no "colour"'),
        ({"op": "fault", "kind": "glitch", "gpu": 1, "sensor": "smell"}, "no sensor is called"),
        ({"op": "fault", "kind": "bmc_cap", "watts": float("nan")}, "from 1 to 5000"),
        ({"op": "fault", "kind": "hang", "gpu": 1, "seconds": float("nan")}, "cannot last"),
        ({"op": "fault", "kind": "hang", "gpu": 1, "seconds": -1}, "cannot last"),
        ({"op": "inlet", "celsius": float("nan")}, "inlet cannot be"),
        ({"op": "fault"}, "'kind' is missing"),
        ({"op": "load", "load": "sleep"}, "no load is called"),
        ({"op": "load", "load": "idle", "gpus": "0-9"}, "not there"),
        ({"op": "advance", "seconds": -1}, "cannot advance"),
        ({"op": "dance"}, "no operation is called"),
        ({"op": "set_power_limit", "gpu": "x", "milliwatts": 1}, "no GPU x"),
    ],
)
def test_wrong_requests(machine, request_, words):
    """A wrong request is refused in one line that says what would be right; the machine goes on."""
    with pytest.raises(ControlError, match=words):
        machine.client.request(**request_)
    assert machine.client.state()["now"] == 0


def test_garbage_and_many_clients(machine):
    """Lines that are no JSON are refused, not fatal; clients that vanish do not disturb the others."""
    clients = [Client(machine.directory) for _ in range(5)]
    for client in clients:
        client.subscribe(0)
    clients[0]._connection().sendall(b"{]\n[1]\n")
    assert clients[0]._line(5)["ok"] is False
    assert "one JSON object" in clients[0]._line(5)["error"]
    for client in clients[:4]:
        client.close()
    machine.client.fault("lost", gpu=0)
    assert clients[4].event(5) == {"event": "xid", "gpu": 0, "xid": 79}
    clients[4].close()


def test_nobody_answers(tmp_path):
    """Without a machine a client says where it looked; a setter is an unknown error, as with a dead driver."""
    with pytest.raises(ControlError, match=r"control\.sock"):
        Client(str(tmp_path)).state()


def test_a_vanished_machine_does_not_break_readers(simulator, tmp_path):
    """When the simulator ends, open readers keep their last values, setters and waits fail cleanly."""
    process = simulator("--profile", "dgx-h200")
    assert process.stdout.readline() == "ready\n"
    vendor = SimulatedNvml(str(tmp_path / "dgx"))
    vendor.nvmlInit()
    handle = vendor.nvmlDeviceGetHandleByIndex(0)
    events = vendor.nvmlEventSetCreate()
    vendor.nvmlDeviceRegisterEvents(handle, 8, events)
    process.terminate()
    assert process.wait(20) == 0
    assert temperature(vendor, handle) > 0
    assert code_of(vendor.nvmlEventSetWait_v2, events, 1000) == 999
    assert code_of(vendor.nvmlDeviceSetPowerManagementLimit, handle, 500_000) == 999
    vendor.nvmlShutdown()


def test_ends_with_its_parent(simulator, tmp_path):
    """The simulator ends when its stdin does: a parent that was killed leaves none behind."""
    process = simulator("--profile", "dgx-a100", "--gpus", "1")
    assert process.stdout.readline() == "ready\n"
    process.stdin.close()
    process.stdin = None
    assert process.wait(20) == 0
    assert not (tmp_path / "dgx/control.sock").exists()


def test_real_time_flows(simulator, tmp_path):
    """Unasked, simulated time follows real time."""
    process = simulator("--profile", "dgx-h200", "--gpus", "1")
    assert process.stdout.readline() == "ready\n"
    with Client(str(tmp_path / "dgx")) as client:
        end = time.monotonic() + 20
        while client.state()["now"] < 0.5:
            assert time.monotonic() < end
        client.pause()
        stopped = client.state()["now"]
        client.advance(1)
        assert client.state()["now"] == pytest.approx(stopped + 1)
    assert (tmp_path / "dgx/kmsg").exists()


def test_codes_are_pynvmls():
    """The codes used here are NVML's."""
    assert (pynvml.NVML_ERROR_OPERATING_SYSTEM, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH) == (17, 18)
