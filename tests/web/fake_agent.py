"""A plausible DGX H200 for the web tests and the documentation's screenshot."""

from coldaisle.domain.clock import FakeClock
from coldaisle.domain.events import Event, EventStream, Severity
from coldaisle.domain.gpu import GpuIdentity, GpuState
from coldaisle.domain.health import Health, State
from coldaisle.domain.node import FilesystemView, GpuView, HealthReport, NodeView
from coldaisle.metrics.exposition import Renderer
from coldaisle.metrics.families import Family, Kind, Sample

TEMPERATURE = Family("dgx_gpu_temperature_celsius", Kind.GAUGE, "Core temperature by NVML.", ("gpu", "uuid"), "celsius")
LOST = "GPU is lost: it has fallen off the bus (NVML 15)"
REMEDY = "drain the node; check `dmesg` for Xid 79; power-cycle the machine, then run `dcgmi diag -r 3`"


def uuid(index):
    return f"GPU-5d1c0a{index:02d}-7c1e-4f0a-9b6d-3a1f00c4e2{index:02d}"


def gpu(index):
    identity = GpuIdentity(
        index, uuid(index), "NVIDIA H200", f"16510240{index:05d}", f"00000000:{index * 16 + 27:02x}:00.0"
    )
    if index == 3:
        return GpuView(identity, GpuState.LOST, LOST, memory_total=150.75e9)
    if index == 6:
        return GpuView(
            identity,
            GpuState.OK,
            "",
            34.0,
            38.0,
            53.0,
            76.4,
            700.0,
            0.0,
            0.0,
            0.0,
            0.0,
            345e6,
            1980e6,
            0.6e9,
            150.75e9,
            ("gpu_idle",),
        )
    heat = (index * 5) % 7
    power = 655.0 + index * 6
    reasons = ("sw_power_cap",) if index in (1, 4) else ()
    if index == 5:
        return GpuView(
            identity,
            GpuState.OK,
            "",
            86.0,
            93.0,
            1.0,
            601.0,
            700.0,
            1.0,
            0.78,
            0.5,
            0.5,
            1410e6,
            1980e6,
            131.4e9,
            150.75e9,
            ("sw_thermal_slowdown", "sw_power_cap"),
        )
    return GpuView(
        identity, GpuState.OK, "", 62.0 + heat, 71.0 + heat, 25.0 - heat, power, 700.0, 0.99, 0.91 - heat / 50, 0.62, 0.44,
        (1755 + 15 * heat) * 1e6, 1980e6, 128e9 + index * 1e9, 150.75e9, reasons,
    )  # fmt: skip


class FakeAgent:
    """Answers as `web.ports.Agent`; its attributes may be set to anything."""

    def __init__(self):
        self.clock = FakeClock()
        self.events = EventStream(capacity=50)
        self.serving = True
        self.awaited = ""
        self.parts = self._parts()
        self.view = self._node()
        self.error = None
        samples = [
            Sample(TEMPERATURE, (str(row.identity.index), row.identity.uuid), row.temperature)
            for row in self.view.gpus
            if row.temperature is not None
        ]
        self.page = Renderer([TEMPERATURE]).render(samples)
        wall = self.clock.wall()
        for ago, kind, name, severity, message, index in (
            (4210, "config", "reload", Severity.INFO, "The configuration was taken up; changed: mode.", None),
            (1804, "xid", "xid_79", Severity.CRITICAL, "Xid 79: the GPU has fallen off the bus.", 3),
            (1803, "health", "gpu_lost", Severity.CRITICAL, "GPU 3 is lost.", 3),
            (377, "health", "thermal_slowdown", Severity.WARNING, "GPU 5 slows down: 1 °C below its limit.", 5),
            (63, "health", "mount_hung", Severity.WARNING, "/mnt/lustre has not answered for 30 s.", None),
        ):
            self.events.append(
                Event(wall - ago, kind, name, severity, message, "nvml", None if index is None else uuid(index))
            )

    def _parts(self):
        now = self.clock.monotonic()
        return (
            Health("nvml", State.DEGRADED, "7 of 8 GPUs answer", REMEDY, now - 0.3),
            *(
                Health(f"gpu {index}", State.FAILED, LOST, REMEDY, now - 1804)
                if index == 3
                else Health(f"gpu {index}", State.OK, "", "", now - 0.3 - index / 100)
                for index in range(8)
            ),
            Health("gpm", State.OK, "", "", now - 0.3),
            Health("kmsg", State.OK, "", "", now - 0.9),
            Health("dcgm", State.OFF, "no host engine runs here", "`systemctl start nvidia-dcgm`, or leave it", None),
            Health("filesystems", State.DEGRADED, "/mnt/lustre has not answered for 30 s", "check the file server; `df /mnt/lustre` hangs", now - 63),
            *(Health(name, State.OK, "", "", now - 0.4) for name in ("gpu", "cpu", "memory", "network", "pressure", "events", "config", "agent")),
        )  # fmt: skip

    def _node(self):
        return NodeView(
            hostname="dgx-a07",
            product="NVIDIA DGX H200",
            driver_version="580.95.05",
            cuda_version="13.0",
            nvml_version="13.580.95.05",
            simulated=True,
            mode="observe",
            released=False,
            expected_gpus=8,
            gpus=tuple(map(gpu, range(8))),
            filesystems=(
                FilesystemView("/", "/dev/md0", "ext4", 1.9e12, 1.37e12, read_only=False),
                FilesystemView("/raid", "/dev/md1", "xfs", 30.7e12, 1.3e12, read_only=False),
                FilesystemView("/boot/efi", "/dev/nvme0n1p1", "vfat", 5.36e8, 5.3e8, read_only=False),
                FilesystemView("/opt/images", "/dev/nvme1n1", "squashfs", 5e11, 0.9e11, read_only=True),
                FilesystemView("/mnt/lustre", "10.0.8.4@o2ib:/scratch", "lustre", None, None, read_only=False, problem="hung for 30 s"),
            ),
            sources=self.parts,
            state=State.DEGRADED,
            reason=f"gpu 3: {LOST}; filesystems: /mnt/lustre has not answered for 30 s",
            sampled_at=self.clock.wall() - 0.4,
        )  # fmt: skip

    def exposition(self):
        if self.error:
            raise self.error
        return self.page

    def health(self):
        return HealthReport(
            self.view.state if self.serving else State.FAILED, self.serving, self.view.reason, self.parts
        )

    def ready(self):
        return not self.awaited, self.awaited

    def node(self):
        return self.view
