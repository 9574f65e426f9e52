"""A node to show, and an agent to ask."""

import asyncio
import threading

import pytest

from coldaisle.app.control import ControlServer
from coldaisle.domain.errors import ColdaisleError
from coldaisle.domain.gpu import GpuIdentity, GpuState
from coldaisle.domain.health import Health, State
from coldaisle.domain.node import FilesystemView, GpuView, NodeView


@pytest.fixture
def node():
    """A node with a busy GPU, a lost one, a hung mount and a failed source."""
    return NodeView(
        hostname="dgx-07",
        product="DGX H200",
        driver_version="570.86.15",
        cuda_version="12.8",
        nvml_version="12.570",
        simulated=True,
        mode="observe",
        released=False,
        expected_gpus=8,
        gpus=(
            GpuView(
                GpuIdentity(0, "GPU-aa", "NVIDIA H200"),
                GpuState.OK,
                temperature=64.0,
                memory_temperature=71.0,
                power=612.4,
                power_limit=700.0,
                utilization=0.97,
                sm_active=0.885,
                tensor_active=0.0,
                dram_active=0.41,
                sm_clock=1_755e6,
                memory_used=120 * 2**30,
                memory_total=141 * 2**30,
                reasons=("sw_power_cap",),
            ),
            GpuView(GpuIdentity(3, "GPU-bb", "NVIDIA H200"), GpuState.LOST, "fell off the bus (Xid 79)"),
        ),
        filesystems=(
            FilesystemView("/", "/dev/nvme0n1p2", "ext4", 2**40, 2**38, read_only=True),
            FilesystemView("/mnt/nfs", "server:/x", "nfs4", None, None, read_only=False, problem="no answer for 2 s"),
        ),
        sources=(
            Health("nvml", State.DEGRADED, "GPU 3 is lost", "drain the node"),
            Health("kmsg", State.OK),
            Health("dcgm", State.OFF, "no host engine"),
        ),
        state=State.DEGRADED,
        reason="GPU 3 is lost",
        sampled_at=1_800_000_000.0,
    )


class FakeAgent:
    """A control server on a thread of its own, with the ops of the real one."""

    def __init__(self, path, node):
        self.path = path
        self.node = node
        self.requests = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server = ControlServer(
            path, {name: getattr(self, name) for name in ("status", "release", "resume", "record")}
        )
        self._call(self._server.start())

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def status(self, request, peer):
        return {"node": self.node, "state": self.node.state}

    async def release(self, request, peer):
        self.requests.append(request)
        return {"released": True}

    async def resume(self, request, peer):
        raise ColdaisleError("nothing is released", remedy="run coldaisle release first")

    async def record(self, request, peer):
        self.requests.append(request)
        return {"message": "recorded 12 calls"}

    def close(self):
        self._call(self._server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture
def agent(tmp_path, node):
    agent = FakeAgent(tmp_path / "control.sock", node)
    yield agent
    agent.close()
