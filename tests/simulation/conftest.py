"""A simulated machine in this process, on its own directory and thread, whose time moves only by `advance`."""

import io
import subprocess
import sys
import threading

import pytest

from coldaisle.simulation.control import Client
from coldaisle.simulation.machine import GPU, GPU_SIZE, NODE_SIZE, Writer
from coldaisle.simulation.node import Node
from coldaisle.simulation.nvml import SimulatedNvml
from coldaisle.simulation.profiles import BY_NAME, PROFILES
from coldaisle.simulation.server import Server


class Machine:
    """A node with the real server loop in a thread; `client` injects, `open` gives a reader as the driver has it."""

    def __init__(self, directory, profile="dgx-h200", gpus=4):
        self.directory = str(directory)
        writer = Writer(self.directory, gpus, PROFILES.index(BY_NAME[profile]))
        self.kmsg = io.StringIO()
        self.node = Node(BY_NAME[profile], gpus, 0, writer, self.kmsg, lambda: 12.5)
        self.now = 0.0  # real time stands still: the loop never steps by itself
        self.server = Server(self.node, self.directory, lambda: self.now)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        self.client = Client(self.directory)
        self.vendors = []

    def open(self):
        vendor = SimulatedNvml(self.directory)
        vendor.nvmlInit()
        self.vendors.append(vendor)
        return vendor

    def close(self):
        self.client.clear()  # lets hung calls go
        self.server.running = False
        self.thread.join(10)
        assert not self.thread.is_alive()
        self.client.close()
        self.server.close()
        for vendor in self.vendors:
            if vendor._sessions:
                vendor.nvmlShutdown()


@pytest.fixture
def build(tmp_path):
    machines = []

    def make(profile="dgx-h200", gpus=4):
        directory = tmp_path / f"machine{len(machines)}"
        directory.mkdir()
        machines.append(Machine(directory, profile, gpus))
        return machines[-1]

    yield make
    for machine in machines:
        machine.close()


@pytest.fixture
def machine(build):
    return build()


@pytest.fixture
def simulator(tmp_path):
    """Start the simulator's own process; it ends with the test."""
    started = []

    def start(*arguments, stdin=subprocess.PIPE):
        process = subprocess.Popen(
            [sys.executable, "-m", "coldaisle.app.simulator", "--dir", str(tmp_path / "dgx"), *arguments],
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=20)


def slot(vendor, gpu, name):
    return vendor._values[NODE_SIZE + gpu * GPU_SIZE + GPU[name]]
