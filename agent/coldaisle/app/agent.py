"""The running agent: one tick from vendor readings to rendered metrics, and the answers that HTTP and control give."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from coldaisle.app.view import gpu_view, report
from coldaisle.collectors.boundary import Boundary, Collector
from coldaisle.collectors.gpu import GpuCollector
from coldaisle.domain.clock import Clock
from coldaisle.domain.events import Event, EventStream, Severity
from coldaisle.domain.gpu import GpuState
from coldaisle.domain.health import Health, State
from coldaisle.domain.node import FilesystemView, HealthReport, NodeView
from coldaisle.drivers.inventory import Inventory
from coldaisle.drivers.nvml_supervisor import NvmlSupervisor
from coldaisle.metrics.exposition import Exposition, Renderer
from coldaisle.metrics.families import Family, Kind, Sample
from coldaisle.metrics.gpu_table import GpuTable

FRAME_WAIT = 0.25
"""Seconds that a tick waits for the GPUs' frames before it publishes without the slow ones. A healthy GPU answers in
a few milliseconds; a quarter of the shortest sensible interval leaves time for everything else."""
STALL_INTERVALS = 10
"""Ticks without a completed sample after which sampling counts as stopped (`/health` 503): far above any late tick,
far below the time in which someone would miss the data."""

NODE_INFO = Family(
    "dgx_node_info",
    Kind.INFO,
    "The node: name, product, driver and whether its GPUs are simulated or replayed.",
    ("hostname", "product", "driver_version", "nvml_version", "cuda_version", "simulated", "mode"),
)
LEFT_OUT = Family(
    "coldaisle_exposition_left_out_total",
    Kind.COUNTER,
    "Samples that were not published because they were no finite number or stood twice; each is a bug worth a report.",
    ("reason",),
)
SAMPLED = Family(
    "coldaisle_last_sample_timestamp_seconds",
    Kind.GAUGE,
    "Unix time of the sample that this page shows.",
    (),
    "seconds",
)


class Agent:
    """Everything that runs on the event loop of the main process; no method blocks.

    Args:
        clock: time.
        events: the event stream.
        table, supervisor: GPU readings and the child they come from.
        inventory: what the machine is.
        collectors: all but the GPU collector, which is added here, in publication order.
        extra_samples: samples of the schedule, reloads and the like, taken at the end of each tick.
        extra_families: their families.
        sources: verdicts of sources other than NVML (kernel log, ...).
        filesystems: rows for the page.
        mode: `observe` or `advise`.
        simulated: whether the GPUs are simulated or replayed.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        events: EventStream,
        table: GpuTable,
        supervisor: NvmlSupervisor,
        inventory: Callable[[], Inventory],
        collectors: Sequence[Collector],
        extra_samples: Callable[[], list[Sample]],
        extra_families: Sequence[Family],
        sources: Callable[[float], list[Health]],
        filesystems: Callable[[], Sequence[FilesystemView]],
        mode: Callable[[], str],
        simulated: bool,
    ) -> None:
        self.clock = clock
        self.events = events
        self.table = table
        self.supervisor = supervisor
        self.simulated = simulated
        self._inventory = inventory
        self._extra_samples = extra_samples
        self._sources = sources
        self._filesystems = filesystems
        self._mode = mode
        gpu = GpuCollector(
            table, lambda: (inventory().expected_gpus, inventory().expected_by), lambda: supervisor.driver.gpus
        )
        self._boundary = Boundary([gpu, *collectors], clock, time.perf_counter)
        self.families = (NODE_INFO, SAMPLED, LEFT_OUT, *self._boundary.families, *extra_families)
        self._renderer = Renderer(self.families)
        self._exposition = self._renderer.render([])
        self._duplicates = self._dropped = 0
        self._sampled_at: float | None = None
        self._sampled_wall: float | None = None
        self._frames = asyncio.Event()
        self._started_at = clock.monotonic()
        supervisor.on_frames = self._frames.set

    async def tick(self, now: float) -> None:
        """Sample everything once and publish it."""
        self._frames.clear()
        self.supervisor.tick(now)
        if not self.supervisor.complete():
            try:
                async with asyncio.timeout(FRAME_WAIT):
                    await self._frames.wait()
            except TimeoutError:
                pass  # whoever is slow is judged by the supervisor; the others are published on time
        self.publish()

    def publish(self) -> None:
        """Run the collectors and render what they say."""
        now = self.clock.monotonic()
        self._sampled_wall = self.clock.wall()
        samples = [
            Sample(NODE_INFO, self._node_labels(), 1),
            Sample(SAMPLED, (), self._sampled_wall),
            Sample(LEFT_OUT, ("duplicate",), self._duplicates),
            Sample(LEFT_OUT, ("not_finite",), self._dropped),
            *self._boundary.run(now),
            *self._extra_samples(),
        ]
        self._exposition = self._renderer.render(samples)
        self._duplicates += self._exposition.duplicates
        self._dropped += self._exposition.dropped
        self._sampled_at = now

    def note(self, name: str, severity: str, message: str, uuid: str | None) -> None:
        """Put a health event on the stream."""
        self.events.append(Event(self.clock.wall(), "health", name, Severity(severity), message, "nvml", uuid))

    # -- web.ports.Agent ---------------------------------------------------------------------------------------------

    def exposition(self) -> Exposition:
        """The last complete sample, rendered."""
        return self._exposition

    def source_health(self, now: float) -> list[Health]:
        """Verdicts on all sources: the library, each GPU, the rest."""
        return [*self.supervisor.health(), *self._sources(now)]

    def health(self) -> HealthReport:
        """The verdict of `/health`, judged now."""
        now = self.clock.monotonic()
        since = now - (self._sampled_at if self._sampled_at is not None else self._started_at)
        return report(
            [*self.source_health(now), *self._boundary.health()],
            sampling=since <= STALL_INTERVALS * max(self.table.interval, 1.0),
            gpu_source_works=any(record.state in (GpuState.OK, GpuState.LATE) for record in self.table.gpus.values()),
            gpu_source_starts=any(part.state is State.STARTING for part in self.supervisor.health()),
            released=self.supervisor.released,
        )

    def ready(self) -> tuple[bool, str]:
        """Whether every source has answered or failed once."""
        waiting = [part.name for part in self.source_health(self.clock.monotonic()) if part.state is State.STARTING]
        if self._sampled_at is None:
            return False, "the first sample has not been taken"
        if waiting and not self.supervisor.released:
            return False, f"waiting for {', '.join(waiting)}"
        return True, ""

    def node(self) -> NodeView:
        """What the page shows."""
        now = self.clock.monotonic()
        health = self.health()
        driver = self.supervisor.driver
        return NodeView(
            hostname=self._inventory().hostname,
            product=self._inventory().product,
            driver_version=driver.driver,
            cuda_version=driver.cuda,
            nvml_version=driver.nvml,
            simulated=self.simulated,
            mode=self._mode(),
            released=self.supervisor.released,
            expected_gpus=self._inventory().expected_gpus,
            gpus=tuple(gpu_view(self.table, record, now) for _, record in sorted(self.table.gpus.items())),
            filesystems=tuple(self._filesystems()),
            sources=health.parts,
            state=health.state,
            reason=health.reason,
            sampled_at=self._sampled_wall,
        )

    # -- control -----------------------------------------------------------------------------------------------------

    def release(self) -> dict[str, Any]:
        """Close every vendor handle; the answer comes when `handles_closed` says so."""
        if not self.supervisor.released:
            self.supervisor.release(self.clock.monotonic())
            self.note("released", "info", "all vendor handles are being closed on request", None)
        return {"released": True}

    def resume(self) -> dict[str, Any]:
        """Take sampling up again."""
        if self.supervisor.released:
            self.supervisor.resume()
            self.note("resumed", "info", "vendor sampling taken up again on request", None)
        return {"released": False}

    def handles_closed(self) -> bool:
        """Whether no child that held a vendor handle is left."""
        self.supervisor.undertaker.look(self.clock.monotonic())
        return self.supervisor.undertaker.count == 0

    def _node_labels(self) -> tuple[str, ...]:
        driver = self.supervisor.driver
        return (
            self._inventory().hostname,
            self._inventory().product,
            driver.driver,
            driver.nvml,
            driver.cuda,
            "true" if self.simulated else "false",
            self._mode(),
        )
