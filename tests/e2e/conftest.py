"""A real agent on a simulated DGX, in its own processes, on free ports; everything ends with the test."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

DEADLINE = 40


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(check, what, deadline=DEADLINE):
    """Poll until `check` gives something true; the deadline only bounds a failure."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        if result := check():
            return result
        time.sleep(0.05)  # a poll with a deadline, not a fixed wait
    raise AssertionError(f"not within {deadline} s: {what}")


def settled(ask, wanted, deadline=DEADLINE):
    """Poll until `ask` gives `wanted`; return its last answer, so that the assertion shows what it was instead."""
    end = time.monotonic() + deadline
    while (answer := ask()) != wanted and time.monotonic() < end:
        time.sleep(0.05)  # a poll with a deadline, not a fixed wait
    return answer


class AgentProcess:
    """`coldaisle run` and what tests ask of it."""

    def __init__(self, directory: Path, *arguments, config=""):
        self.directory = directory
        self.port = free_port()
        self.config = directory / "config.yaml"
        self.config.write_text(
            f"paths: {{runtime: {directory / 'run'}, state: {directory / 'state'}}}\n{config}"
        )
        self.log = (directory / "log").open("w+")
        self._simulator = None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "coldaisle", "run", "--config", str(self.config),
             "--web.listen-address", f"127.0.0.1:{self.port}", *arguments],
            stderr=self.log, stdout=self.log, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def simulator(self):
        from coldaisle.simulation.control import Client

        if self._simulator is None:
            self._simulator = Client(str(self.directory / "run/simulator"))
        return self._simulator

    def get(self, path, headers=None):
        request = urllib.request.Request(self.url + path, headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except (OSError, urllib.error.URLError):
            return 0, b""

    def json(self, path):
        status, body = self.get(path)
        return json.loads(body) if status else {}

    def ready(self):
        if self.process.poll() is not None:
            self.log.seek(0)
            raise AssertionError(f"the agent ended: {self.log.read()}")
        return self.get("/readyz")[0] == 200

    def wait_ready(self):
        until(self.ready, "ready")
        return self

    def series(self):
        """{name{labels}: value} of the present exposition."""
        lines = self.get("/metrics")[1].decode().splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))

    def gpus_with(self, family):
        """Indices of the GPUs that have a series of `family`."""
        return {
            int(name.split('gpu="', 1)[1].split('"', 1)[0]) for name in self.series() if name.startswith(family + "{gpu=")
        }

    def part(self, name):
        return next((part for part in self.json("/health").get("parts", []) if part["name"] == name), None)

    def children(self, module="coldaisle.app.nvml_child"):
        """Pids of our child processes that run `module` and are no probe."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            if parent == self.process.pid and module in command and '"probe"' not in command:
                found.append(int(entry.name))
        return found

    def command(self, *arguments):
        return subprocess.run(
            [sys.executable, "-m", "coldaisle", *arguments, "--config", str(self.config)],
            capture_output=True, text=True, timeout=60,
        )

    def stop(self, number=signal.SIGTERM):
        if self._simulator is not None:
            self._simulator.close()
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(40)

    def read_log(self):
        self.log.flush()
        return (self.directory / "log").read_text()


@pytest.fixture
def start(tmp_path):
    """Start agents that end with the test."""
    agents = []

    def begin(*arguments, config=""):
        directory = tmp_path / f"agent{len(agents)}"
        directory.mkdir()
        agent = AgentProcess(directory, *arguments, config=config)
        agents.append(agent)
        return agent

    yield begin
    for agent in agents:
        try:
            agent.stop()
        except subprocess.TimeoutExpired:
            agent.process.kill()
        agent.log.close()


@pytest.fixture
def dgx(start):
    """A ready agent on a simulated DGX H200 with eight GPUs."""
    return start("--simulate", "dgx-h200", config="gpu: {hang_deadline: 2s}\n").wait_ready()


pytest.until = until
pytest.settled = settled
