"""The supervisor: one bad GPU never hides the others, and the child is replaced, not trusted."""

import signal
import sys
from collections import deque
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from coldaisle.domain.gpu import GpuState
from coldaisle.domain.health import State
from coldaisle.drivers.nvml.flight import CALLS, LIBRARY, FlightRecorder
from coldaisle.drivers.nvml_supervisor import BACKOFF_MAX, INIT_DEADLINE, NvmlSupervisor
from coldaisle.metrics.gpu_fields import BY_CADENCE
from coldaisle.metrics.gpu_table import GpuTable


class FakeChild:
    """A child whose answers the test writes; its flight recorder is the real one."""

    def __init__(self, job, flight_fd, number):
        self.job = job
        self.pid = number
        self.recorder = FlightRecorder(flight_fd, CALLS)
        self.inbox = deque()
        self.sent = []
        self.signals = []
        self.status = None
        self.open = True

    def fileno(self):
        return self.pid

    def send(self, message):
        self.sent.append(message)
        return True

    def receive(self):
        if self.inbox:
            return self.inbox.popleft()
        if self.status is not None:
            return None
        raise BlockingIOError

    def returncode(self):
        return self.status

    def signal(self, number):
        self.signals.append(number)

    def close(self):
        self.open = False


class Rig:
    """A supervisor over fake children, driven tick by tick."""

    def __init__(self, gpus=8):
        self.now = 1_000.0
        self.gpus = gpus
        self.children = []
        self.callbacks = {}
        self.events = []
        self.table = GpuTable()
        self.supervisor = NvmlSupervisor(
            self.table,
            {},
            hang_deadline=5,
            notify=lambda *event: self.events.append(event),
            watch=self.callbacks.__setitem__,
            unwatch=lambda fd: self.callbacks.pop(fd, None),
            spawn=self.spawn,
        )

    def spawn(self, job, flight_fd):
        child = FakeChild(job, flight_fd, len(self.children) + 1)
        self.children.append(child)
        return child

    @property
    def main(self):
        return [child for child in self.children if "probe" not in child.job][-1]

    def say(self, child, *messages):
        child.inbox.extend(messages)
        if callback := self.callbacks.get(child.pid):
            callback()

    def start(self):
        self.tick()
        self.hello()

    def hello(self):
        child = self.main
        self.say(child, {"k": "hello", "driver": "580.1", "nvml": "13", "cuda": "13.0", "count": self.gpus})
        for index in range(self.gpus):
            if index not in child.job["skip"]:
                self.identify(child, index)

    def identify(self, child, index):
        self.say(child, {"k": "gpu", "i": index, "id": {"uuid": f"GPU-{index}"}, "sources": {}, "gpm_absent": ""})

    def tick(self, *, answering=(), seconds=1.0):
        self.now += seconds
        self.supervisor.tick(self.now)
        for index in answering:
            self.answer(index)

    def answer(self, index, value=50.0):
        values = [value] * len(BY_CADENCE["fast"])
        self.say(self.main, {"k": "f", "i": index, "c": "fast", "t": self.now, "s": 0.001, "v": values})

    def states(self):
        return {index: record.state for index, record in self.table.gpus.items()}

    def temperature(self, index):
        return self.table.value(self.table.gpus[index], "temperature_core", self.now)


@pytest.fixture
def rig():
    return Rig()


def test_healthy(rig):
    """All GPUs answer: all are ok, values are there, the library is ok."""
    rig.start()
    rig.tick(answering=range(8))
    assert set(rig.states().values()) == {GpuState.OK}
    assert rig.temperature(3) == 50.0
    assert rig.supervisor.complete()
    assert [health.state for health in rig.supervisor.health()] == [State.OK] * 9


def test_starting_until_every_gpu_has_spoken(rig):
    """The library's answer alone is not health: until each GPU has answered or failed, the source is starting."""
    rig.tick()
    rig.say(rig.main, {"k": "hello", "driver": "580.1", "nvml": "13", "cuda": "13.0", "count": 8})
    assert rig.supervisor.health()[0].state is State.STARTING
    rig.hello()
    assert rig.supervisor.health()[0].state is State.OK


def test_late_then_absent(rig):
    """A GPU that misses a tick is late; after three intervals its values are gone, the others' are not."""
    rig.start()
    rig.tick(answering=range(8))
    others = [index for index in range(8) if index != 3]
    for _ in range(3):
        rig.tick(answering=others)
    assert rig.states()[3] is GpuState.LATE
    assert rig.temperature(3) == 50.0
    rig.tick(answering=others)
    assert rig.temperature(3) is None
    assert rig.temperature(2) == 50.0


def test_hang_sets_only_that_gpu_aside(rig):
    """A call on GPU 3 that does not return quarantines GPU 3, keeps the child, and is told with the call's name."""
    rig.start()
    rig.tick(answering=range(8))
    rig.main.recorder.enter(3, "nvmlDeviceGetTemperature", rig.now)
    others = [index for index in range(8) if index != 3]
    for _ in range(7):
        rig.tick(answering=others)
    assert rig.states()[3] is GpuState.HUNG
    assert "nvmlDeviceGetTemperature has not returned" in rig.table.gpus[3].reason
    assert all(rig.temperature(index) == 50.0 for index in others)
    assert len([child for child in rig.children if "probe" not in child.job]) == 1


def test_hang_that_ends_by_itself(rig):
    """When the call returns after all, the GPU's next frame takes it back."""
    test_hang_sets_only_that_gpu_aside(rig)
    rig.main.recorder.leave(3)
    rig.tick(answering=range(8))
    assert rig.states()[3] is GpuState.OK
    assert rig.supervisor.quarantine.members == frozenset()


def test_probe_recovers_a_hung_gpu_by_replacing_the_child(rig):
    """A probe from outside succeeds while the old thread is stuck: a new child takes over with all GPUs."""
    test_hang_sets_only_that_gpu_aside(rig)
    old = rig.main
    probe = next(child for child in rig.children if "probe" in child.job)
    assert probe.job["probe"] == 3
    rig.say(probe, {"k": "probe", "i": 3, "ok": True})
    assert rig.main is not old
    assert rig.main.job["skip"] == []
    assert old.signals == [signal.SIGTERM]
    rig.hello()
    rig.tick(answering=range(8))
    assert set(rig.states().values()) == {GpuState.OK}


def test_failed_probes_back_off(rig):
    """A GPU that stays bad is probed ever more rarely."""
    test_hang_sets_only_that_gpu_aside(rig)
    others = [index for index in range(8) if index != 3]
    for _ in range(60):
        for child in rig.children:
            if "probe" in child.job and rig.supervisor.pids.get("nvml-probe-3") == child.pid:
                rig.say(child, {"k": "probe", "i": 3, "ok": False})
        rig.tick(answering=others)
    probes = [child for child in rig.children if "probe" in child.job]
    assert 4 <= len(probes) <= 7  # at 1, 2, 4, 8, 16, 32 s


def test_crash_quarantines_the_gpu_in_call(rig):
    """The child dies of a signal inside a call on GPU 5: it restarts at once without GPU 5."""
    rig.start()
    rig.tick(answering=range(8))
    dead = rig.main
    dead.recorder.enter(5, "nvmlGpmSampleGet", rig.now)
    dead.status = -signal.SIGSEGV
    rig.callbacks[dead.pid]()
    assert rig.main is not dead
    assert rig.main.job["skip"] == [5]
    assert rig.states()[5] is GpuState.CRASHED
    assert "nvmlGpmSampleGet" in rig.table.gpus[5].reason
    assert "SIGSEGV" in rig.table.gpus[5].reason
    assert rig.temperature(4) == 50.0  # still within three intervals
    assert rig.supervisor.restarts == {"crash": 1}


def test_probe_adds_a_crashed_gpu_back(rig):
    """A probe that succeeds puts the GPU back into the running child, with no restart."""
    test_crash_quarantines_the_gpu_in_call(rig)
    rig.hello()
    rig.tick(answering=[0, 1, 2, 3, 4, 6, 7], seconds=2)
    probe = next(child for child in rig.children if "probe" in child.job)
    rig.say(probe, {"k": "probe", "i": 5, "ok": True})
    assert {"op": "add", "i": 5} in rig.main.sent


def crash_with(rig, *suspects):
    rig.start()
    rig.tick(answering=range(8))
    dead = rig.main
    for index in suspects:
        dead.recorder.enter(index, "nvmlDeviceGetTemperature", rig.now)
    dead.status = -signal.SIGSEGV
    rig.callbacks[dead.pid]()
    return {child.job["probe"]: child for child in rig.children if "probe" in child.job}


def test_several_suspects_are_probed_at_once_and_in_parallel(rig):
    """An innocent GPU that was in a call too does not wait for the sick one's probe, nor lose its young values."""
    probes = crash_with(rig, 3, 7)
    assert set(probes) == {3, 7}
    assert rig.main.job["skip"] == [3, 7]
    assert rig.temperature(7) == 50.0
    rig.hello()
    rig.say(probes[7], {"k": "probe", "i": 7, "ok": True})
    assert {"op": "add", "i": 7} in rig.main.sent
    assert rig.temperature(7) == 50.0
    probes[3].status = -signal.SIGSEGV
    rig.callbacks[probes[3].pid]()
    assert rig.states()[3] is GpuState.CRASHED
    assert rig.temperature(3) is None


def test_probe_that_is_faster_than_the_new_child(rig):
    """A GPU that passes its probe before the new child has initialised the library is added once it has."""
    probes = crash_with(rig, 3, 7)
    rig.say(probes[7], {"k": "probe", "i": 7, "ok": True})
    assert {"op": "add", "i": 7} not in rig.main.sent
    rig.hello()
    assert {"op": "add", "i": 7} in rig.main.sent


def test_single_death_with_nobody_to_blame(rig):
    """A child killed between calls is replaced at once: no GPU's values are dropped meanwhile."""
    rig.start()
    rig.tick(answering=range(8))
    dead = rig.main
    dead.status = -signal.SIGKILL
    rig.callbacks[dead.pid]()
    assert rig.main is not dead
    assert rig.main.job["skip"] == []
    assert rig.temperature(0) == 50.0


def test_crash_loop_backs_off(rig):
    """A child that dies at once, with no GPU to blame, is started ever more rarely."""
    rig.start()
    starts = 0
    for _ in range(120):
        child = rig.main
        if child.status is None:
            child.status = 1
            rig.callbacks[child.pid]()
            starts += 1
        rig.tick()
    assert starts <= 10  # at once, then after 1, 2, 4, 8, 16, 30, 30, 30 s
    assert rig.supervisor.health()[0].state is State.FAILED
    assert BACKOFF_MAX == 30


def test_whole_library_hang_finds_the_culprit(rig):
    """Everybody is stuck behind GPU 6's older call: only GPU 6 is set aside, the rest get a new child."""
    rig.start()
    rig.tick(answering=range(8))
    rig.main.recorder.enter(6, "nvmlDeviceGetFieldValues", rig.now)
    for index in (0, 1, 2, 3, 4, 5, 7):
        rig.main.recorder.enter(index, "nvmlDeviceGetTemperature", rig.now + 0.5)
    old = rig.main
    for _ in range(7):
        rig.tick()
    assert rig.main is not old
    assert rig.main.job["skip"] == [6]
    assert rig.states()[6] is GpuState.HUNG


def test_init_hang(rig):
    """An nvmlInit that does not return is replaced after its deadline and named in health."""
    rig.tick()
    rig.main.recorder.enter(LIBRARY, "nvmlInit", rig.now)
    first = rig.main
    rig.tick(seconds=INIT_DEADLINE + 1)
    assert rig.main is not first
    assert "nvmlInit" in rig.supervisor.health()[0].reason


def test_lost_gpu_leaves_seven(rig):
    """GPU 3 says lost: its values vanish at once, seven stay complete."""
    rig.start()
    rig.tick(answering=range(8))
    rig.say(rig.main, {"k": "down", "i": 3, "slug": "lost", "message": "GPU 3 answered NVML error 15", "remedy": "drain"})
    assert rig.states()[3] is GpuState.LOST
    assert rig.temperature(3) is None
    assert rig.temperature(4) == 50.0
    rig.tick(answering=[0, 1, 2, 4, 5, 6, 7])
    assert rig.supervisor.complete()
    assert any(name == "gpu_lost" and uuid == "GPU-3" for name, _, _, uuid in rig.events)


def test_driver_mismatch_then_new_driver(rig):
    """A library that does not match the kernel module is a state with a remedy; a new child is tried with back-off."""
    rig.tick()
    rig.say(rig.main, {"k": "fatal", "slug": "driver_mismatch", "message": "nvmlInit answered 18", "remedy": "reload"})
    health = rig.supervisor.health()[0]
    assert (health.state, health.action) == (State.FAILED, "reload")
    assert rig.supervisor.settled
    rig.tick(seconds=2)
    rig.hello()
    rig.tick(answering=range(8))
    assert rig.supervisor.health()[0].state is State.OK


def test_release_and_resume(rig):
    """Release ends the child by SIGTERM and publishes nothing; resume starts a new one."""
    rig.start()
    rig.tick(answering=range(8))
    child = rig.main
    rig.supervisor.release(rig.now)
    assert child.signals == [signal.SIGTERM]
    assert rig.temperature(0) is None
    assert rig.supervisor.health()[0].state is State.OFF
    rig.tick()
    assert rig.main is child
    rig.supervisor.resume()
    rig.tick()
    assert rig.main is not child


def test_fewer_gpus_after_recount(rig):
    """A GPU that is no longer enumerated is missing, with its values gone."""
    rig.start()
    rig.tick(answering=range(8))
    rig.gpus = 7
    rig.say(rig.main, {"k": "count", "count": 7})
    rig.hello()
    rig.tick(answering=range(7))
    assert rig.states()[7] is GpuState.MISSING
    assert rig.temperature(7) is None


@pytest.mark.parametrize("garbage", [{}, {"k": "f"}, {"k": "f", "i": 0, "c": "nonsense", "t": 1, "s": 0, "v": []},
                                     {"k": "hello"}, {"k": 5}, {"k": "f", "i": "x", "c": "fast", "t": 0, "s": 0, "v": 3}])
def test_malformed_packets_are_counted(rig, garbage):
    """A lying child cannot bring the supervisor down."""
    rig.start()
    rig.say(rig.main, garbage)
    rig.tick(answering=range(8))
    assert set(rig.states().values()) == {GpuState.OK}
