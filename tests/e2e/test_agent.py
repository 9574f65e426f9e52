"""The whole agent on a simulated DGX: one bad GPU, a dead child, a broken file never hide the rest."""

import os
import signal
import socket

import pytest

TEMPERATURE = "dgx_gpu_temperature_celsius"
ALL = set(range(8))


@pytest.fixture
def until():
    return pytest.until


def complete(agent, expected):
    return agent.gpus_with(TEMPERATURE) == expected


def seven_throughout(agent, happened):
    """Make a check for `until` that also holds the seven other GPUs to be there at every single look.

    Readings vanish after three missed intervals, so that a GPU that is always there has missed no more.
    """

    def check():
        missing = ALL - {3} - agent.gpus_with(TEMPERATURE)
        assert not missing, f"GPUs {missing} are absent while only GPU 3 is bad"
        return happened()

    return check


def at_most_three_missed(agent, happened):
    """Make a check for `until` that holds each of the seven to be absent from three samples on end at most.

    A GPU that was in a call when the child died may have been the one that killed it: it is probed before it is
    trusted again. Samples are counted by the agent, not by a clock.
    """
    absent = {}

    def check():
        series = agent.series()
        sample = series['coldaisle_tick_duration_seconds_count{tick="sample"}']
        for gpu in ALL - {3}:
            if any(name.startswith(f'{TEMPERATURE}{{gpu="{gpu}"') for name in series):
                absent.pop(gpu, None)
            else:
                absent.setdefault(gpu, set()).add(sample)
        long = {gpu: len(samples) for gpu, samples in absent.items() if len(samples) > 3}
        assert not long, f"samples missed on end by GPU, while only GPU 3 is bad: {long}"
        return happened()

    return check


def test_eight_gpus_complete(dgx, until):
    """Eight GPUs are exported with profiling; the page, health and node API agree that all is well."""
    until(lambda: complete(dgx, ALL) and dgx.gpus_with("dgx_gpu_sm_active_ratio") == ALL, "eight complete GPUs")
    assert dgx.part("nvml")["state"] == "ok"
    status, page = dgx.get("/")
    assert status == 200
    assert b"imulated" in page
    assert len(dgx.json("/api/v1/node")["gpus"]) == 8
    assert any('simulated="true"' in name for name in dgx.series() if name.startswith("dgx_node_info"))


def test_segfault_of_the_child(dgx, until):
    """A real SIGSEGV inside a call on GPU 3: a new child serves the seven, and GPU 3 comes back by probing."""
    until(lambda: complete(dgx, ALL), "eight GPUs")
    (before,) = dgx.children()
    dgx.simulator.fault("segfault", gpu=3)
    until(
        at_most_three_missed(dgx, lambda: dgx.children() not in ([], [before]) and complete(dgx, ALL - {3})),
        "a new child, and GPU 3 alone is absent",
    )
    until(lambda: (dgx.part("gpu3") or {}).get("state") == "failed", "GPU 3's state")
    assert dgx.part("gpu3")["reason"]
    dgx.simulator.clear(gpu=3)
    until(lambda: complete(dgx, ALL), "GPU 3 again")
    until(lambda: restarts(dgx, "crash") >= 1, "the restart is counted")


def restarts(agent, reason):
    return sum(
        float(value)
        for name, value in agent.series().items()
        if name.startswith("coldaisle_child_restarts_total") and f'reason="{reason}"' in name
    )


def test_killed_child(dgx, until):
    """SIGKILL of the child between calls costs a restart, nothing else."""
    until(lambda: complete(dgx, ALL), "eight GPUs")
    (before,) = dgx.children()
    os.kill(before, signal.SIGKILL)
    until(lambda: dgx.children() not in ([], [before]), "a new child")
    until(lambda: complete(dgx, ALL), "eight GPUs again")


def test_hung_gpu(dgx, until):
    """GPU 3 hangs: its series vanish, seven stay, health names the call, and it returns when the hang ends."""
    until(lambda: complete(dgx, ALL), "eight GPUs")
    dgx.simulator.fault("hang", gpu=3, seconds=15)
    until(seven_throughout(dgx, lambda: complete(dgx, ALL - {3})), "GPU 3 alone is absent")
    until(lambda: "has not returned" in (dgx.part("gpu3") or {}).get("reason", ""), "the reason in health")
    report = dgx.json("/health")
    assert (report["state"], report["serving"]) == ("degraded", True)
    until(lambda: complete(dgx, ALL), "GPU 3 again")


def test_lost_gpu(dgx, until):
    """GPU 3 falls off the bus: lost in state and health, the Xid from the kernel log is counted, seven stay."""
    until(lambda: complete(dgx, ALL), "eight GPUs")
    dgx.simulator.fault("lost", gpu=3)
    until(seven_throughout(dgx, lambda: complete(dgx, ALL - {3})), "GPU 3 alone is absent")
    assert "lost" in dgx.part("gpu3")["reason"]
    assert dgx.get("/health")[0] == 200

    def xid_counted():
        return any(
            name.startswith('dgx_gpu_xid_total{gpu="3"') and 'xid="79"' in name and float(value) == 1
            for name, value in dgx.series().items()
        )

    until(xid_counted, "Xid 79 counted once")


def test_release_and_resume(dgx, until):
    """`release` leaves no process with a vendor handle; `resume` brings everything back."""
    until(lambda: complete(dgx, ALL), "eight GPUs")
    done = dgx.command("release")
    assert done.returncode == 0, done.stderr
    assert dgx.children() == []
    until(lambda: complete(dgx, set()), "no GPU series")
    assert dgx.get("/health")[0] == 200
    assert dgx.command("resume").returncode == 0
    until(lambda: complete(dgx, ALL), "eight GPUs again")


def test_broken_configuration_keeps_the_last_good_one(dgx, until):
    """A broken file is refused with its line while scrapes go on; mending it is taken up."""
    good = dgx.config.read_text()
    dgx.config.write_text(good + "nonsense: 1\n")
    dgx.process.send_signal(signal.SIGHUP)

    def successful(value):
        return dgx.series().get("coldaisle_config_last_reload_successful") == value

    until(lambda: successful("0"), "refused")
    assert "config.yaml:" in dgx.part("config")["reason"]
    assert complete(dgx, ALL)
    dgx.config.write_text(good)
    until(lambda: successful("1"), "taken up")


def test_port_in_use(start):
    """A port that is taken is one line and exit code 4."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        agent = start("--web.listen-address", f"127.0.0.1:{holder.getsockname()[1]}", "--simulate", "dgx-h200")
        assert agent.process.wait(40) == 4
        lines = [line for line in agent.read_log().splitlines() if "coldaisle: error" in line]
        assert len(lines) == 1
        assert "in use" in lines[0]
        assert "Traceback" not in agent.read_log()


@pytest.mark.parametrize("hang", [False, True])
def test_sigterm_frees_the_port(dgx, until, hang):
    """SIGTERM ends the agent with 0 and frees the port, also while a vendor call hangs."""
    until(lambda: complete(dgx, ALL), "eight GPUs")
    if hang:
        dgx.simulator.fault("hang", gpu=3, seconds=60)
        until(lambda: complete(dgx, ALL - {3}), "the hang")
    dgx.process.send_signal(signal.SIGTERM)

    def free():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", dgx.port))
            except OSError:
                return False
        return True

    until(free, "the port is free")
    assert dgx.process.wait(40) == 0
    assert dgx.children() == []


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has a driver")
def test_no_driver(start, until):
    """Without a driver the agent serves, says what is missing and what to do, and does not end."""
    agent = start().wait_ready()
    until(lambda: agent.get("/health")[0] == 503, "the verdict")
    part = agent.part("nvml")
    assert part["state"] == "failed"
    assert "driver" in part["reason"]
    assert "modprobe nvidia" in part["action"]
    assert agent.get("/metrics")[0] == 200
    assert agent.process.poll() is None


@pytest.mark.parametrize(("fault", "word"), [("driver_mismatch", "different versions"), ("driver_absent", "not loaded")])
def test_driver_faults_and_recovery(dgx, until, fault, word):
    """A mismatched or unloaded driver is a state with its reason; the driver that comes back is taken up."""
    until(lambda: complete(dgx, ALL), "eight GPUs")
    dgx.simulator.fault(fault)
    for pid in dgx.children():
        os.kill(pid, signal.SIGKILL)
    until(lambda: word in dgx.part("nvml")["reason"], "the reason")
    dgx.simulator.clear()
    until(lambda: complete(dgx, ALL), "eight GPUs again", 60)


def test_late_driver(start, until, tmp_path):
    """An agent that starts before the driver is loaded says so, and takes the driver up when it comes."""
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("events: [{at: 0s, fault: driver_absent}]\n")
    agent = start("--simulate", "dgx-h200", "--scenario", str(scenario)).wait_ready()
    assert "not loaded" in agent.part("nvml")["reason"]
    # The verdict counts only once every collector has run.
    until(lambda: agent.get("/health")[0] == 503, "the verdict")
    assert complete(agent, set())
    agent.simulator.clear()
    until(lambda: complete(agent, ALL), "eight GPUs", 60)
    assert agent.get("/health")[0] == 200


def test_broken_configuration_at_start(start):
    """A file that is wrong from the start is one line with its place and remedy, and exit code 3."""
    agent = start("--simulate", "dgx-h200", config="nonsense: 1\n")
    assert agent.process.wait(40) == 3
    (line,) = agent.read_log().splitlines()
    assert "config.yaml:2:" in line
