"""The JSON answers, typed: what OpenAPI shows. Absent values are null, never zero."""

from pydantic import BaseModel, Field

from coldaisle.domain.events import Event, Severity
from coldaisle.domain.gpu import GpuState
from coldaisle.domain.health import Health, State
from coldaisle.domain.node import FilesystemView, GpuView, HealthReport, NodeView


class Part(BaseModel):
    """Verdict on one source, collector or GPU."""

    name: str
    state: State
    reason: str = Field(description="A sentence for a person; empty when ok.")
    age_seconds: float | None = Field(description="Seconds since its last good answer; null if there was none.")
    action: str = Field(description="What to try first.")

    @classmethod
    def of(cls, part: Health, now: float) -> "Part":
        """Build from a verdict; `now` is CLOCK_MONOTONIC seconds."""
        age = None if part.last_success is None else round(max(0.0, now - part.last_success), 3)
        return cls(name=part.name, state=part.state, reason=part.reason, age_seconds=age, action=part.action)


class HealthAnswer(BaseModel):
    """The node's health and that of every part."""

    state: State
    serving: bool = Field(description="False, with HTTP 503 at /health: sampling has stopped or no GPU source works.")
    reason: str
    parts: list[Part]

    @classmethod
    def of(cls, report: HealthReport, now: float) -> "HealthAnswer":
        """Build from a report; `now` is CLOCK_MONOTONIC seconds."""
        return cls(
            state=report.state,
            serving=report.serving,
            reason=report.reason,
            parts=[Part.of(part, now) for part in report.parts],
        )


class Gpu(BaseModel):
    """One GPU."""

    index: int
    uuid: str
    name: str
    serial: str
    pci_bus_id: str
    state: GpuState
    reason: str
    temperature_celsius: float | None
    memory_temperature_celsius: float | None
    margin_celsius: float | None = Field(description="Degrees left to the device's own limit.")
    power_watts: float | None
    power_limit_watts: float | None
    utilization_ratio: float | None
    sm_active_ratio: float | None
    tensor_active_ratio: float | None
    dram_active_ratio: float | None
    sm_clock_hertz: float | None
    sm_clock_max_hertz: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    clock_event_reasons: list[str]

    @classmethod
    def of(cls, gpu: GpuView) -> "Gpu":
        """Build from a view."""
        return cls(
            index=gpu.identity.index,
            uuid=gpu.identity.uuid,
            name=gpu.identity.name,
            serial=gpu.identity.serial,
            pci_bus_id=gpu.identity.pci_bus_id,
            state=gpu.state,
            reason=gpu.reason,
            temperature_celsius=gpu.temperature,
            memory_temperature_celsius=gpu.memory_temperature,
            margin_celsius=gpu.margin,
            power_watts=gpu.power,
            power_limit_watts=gpu.power_limit,
            utilization_ratio=gpu.utilization,
            sm_active_ratio=gpu.sm_active,
            tensor_active_ratio=gpu.tensor_active,
            dram_active_ratio=gpu.dram_active,
            sm_clock_hertz=gpu.sm_clock,
            sm_clock_max_hertz=gpu.sm_clock_max,
            memory_used_bytes=gpu.memory_used,
            memory_total_bytes=gpu.memory_total,
            clock_event_reasons=list(gpu.reasons),
        )


class Filesystem(BaseModel):
    """One mount."""

    mountpoint: str
    device: str
    type: str
    size_bytes: float | None
    available_bytes: float | None
    read_only: bool
    problem: str

    @classmethod
    def of(cls, view: FilesystemView) -> "Filesystem":
        """Build from a view."""
        return cls(
            mountpoint=view.mountpoint,
            device=view.device,
            type=view.type,
            size_bytes=view.size,
            available_bytes=view.available,
            read_only=view.read_only,
            problem=view.problem,
        )


class NodeAnswer(BaseModel):
    """What the page shows."""

    hostname: str
    product: str
    driver_version: str
    cuda_version: str
    nvml_version: str
    agent_version: str
    simulated: bool
    mode: str
    released: bool
    expected_gpus: int | None
    state: State
    reason: str
    sampled_at: float | None = Field(description="Unix seconds of the last complete sample.")
    gpus: list[Gpu]
    filesystems: list[Filesystem]
    sources: list[Part]

    @classmethod
    def of(cls, node: NodeView, now: float, agent_version: str) -> "NodeAnswer":
        """Build from a view; `now` is CLOCK_MONOTONIC seconds."""
        return cls(
            hostname=node.hostname,
            product=node.product,
            driver_version=node.driver_version,
            cuda_version=node.cuda_version,
            nvml_version=node.nvml_version,
            agent_version=agent_version,
            simulated=node.simulated,
            mode=node.mode,
            released=node.released,
            expected_gpus=node.expected_gpus,
            state=node.state,
            reason=node.reason,
            sampled_at=node.sampled_at,
            gpus=[Gpu.of(gpu) for gpu in node.gpus],
            filesystems=[Filesystem.of(view) for view in node.filesystems],
            sources=[Part.of(part, now) for part in node.sources],
        )


class EventAnswer(BaseModel):
    """Something that happened once."""

    sequence: int
    time: float = Field(description="Unix seconds.")
    kind: str
    name: str
    severity: Severity
    message: str
    source: str
    uuid: str | None = Field(description="The GPU concerned.")
    facts: dict[str, str]

    @classmethod
    def of(cls, sequence: int, event: Event) -> "EventAnswer":
        """Build from an event of the stream."""
        return cls(
            sequence=sequence,
            time=event.time,
            kind=event.kind,
            name=event.name,
            severity=event.severity,
            message=event.message,
            source=event.source,
            uuid=event.uuid,
            facts=dict(event.facts),
        )


class EventsAnswer(BaseModel):
    """Events, oldest first. Ask again with `since` set to `last`."""

    last: int = Field(description="Number of the newest event; below an earlier `last` means the agent restarted.")
    missed: int = Field(description="Events after `since` that are no longer remembered.")
    events: list[EventAnswer]
