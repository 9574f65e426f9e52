"""The configuration: every key, its type, default and bounds. docs/configuration.md gives each one's reason.

Everything is optional, so an empty file is valid. Values are strict (`"8"` is no number, `yes` no truth value) and
unknown keys are refused. Keys marked `RESTART` are read once, at start: `config.reload` names them when they change.
"""

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from coldaisle.config.quantities import (
    AbsolutePath,
    Duration,
    ListenAddresses,
    Name,
    Names,
    shown,
)

RESTART: dict[str, Any] = {"restart": True}


class Mode(StrEnum):
    """What the governor may do."""

    OBSERVE = "observe"
    ADVISE = "advise"
    ENFORCE = "enforce"


class LogLevel(StrEnum):
    """Least severe line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a line is written to standard error."""

    AUTO = "auto"
    """`journal` under systemd, else `console`."""
    CONSOLE = "console"
    JSON = "json"
    JOURNAL = "journal"


def _choice(choices: type[StrEnum]) -> BeforeValidator:
    def check(value: Any) -> StrEnum:
        if isinstance(value, str) and value in list(choices):
            return choices(value)
        raise ValueError(f"must be one of {', '.join(choices)}; not {shown(value)}")

    return BeforeValidator(check)


def _usable_mode(mode: Mode) -> Mode:
    if mode is Mode.ENFORCE:
        raise ValueError(
            'cannot be "enforce": that needs the actuator, which this version lacks: write "observe" or "advise"'
        )
    return mode


class Section(BaseModel):
    """Base of all sections: nothing unknown, nothing converted, nothing changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NodeSection(Section):
    """What the operator knows about the machine."""

    name: Name | None = None
    expected_gpus: Annotated[int, Field(ge=0, le=64)] | None = None


class FieldSection(Section):
    """Which GPU quantities are read: names of docs/metrics.md or shell patterns."""

    include: Names = ()
    exclude: Names = ()

    @field_validator("exclude")
    @classmethod
    def _no_contradiction(cls, exclude: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if both := sorted(set(info.data.get("include", ())) & set(exclude)):
            raise ValueError(f'has "{both[0]}", which "include" has too: keep one of the two')
        return exclude


class GpuSection(Section):
    """Sampling of GPUs."""

    interval: Annotated[Duration, Field(ge=0.25, le=60)] = 1.0
    hang_deadline: Annotated[Duration, Field(ge=1, le=600)] = 5.0
    fields: FieldSection = FieldSection()


class FilesystemSection(Section):
    """Sampling of mounted filesystems."""

    interval: Annotated[Duration, Field(ge=1, le=3600)] = 1.0
    exclude_mountpoints: Names = ()
    exclude_types: Names = ()
    network_deadline: Annotated[Duration, Field(ge=0.1, le=60)] = 2.0


class HostSection(Section):
    """Sampling of CPU, memory, pressure and network interfaces."""

    enabled: bool = True


class ReaderSection(Section):
    """The process that reads logs."""

    enabled: Annotated[bool, Field(json_schema_extra=RESTART)] = True
    kmsg: Annotated[AbsolutePath, Field(json_schema_extra=RESTART)] = Path("/dev/kmsg")


class AttributionSection(Section):
    """Which job a process belongs to."""

    slurm_mapping_directory: AbsolutePath | None = None


class WebSection(Section):
    """The HTTP server."""

    listen_addresses: Annotated[ListenAddresses, Field(json_schema_extra=RESTART)] = (":10980",)
    config_file: Annotated[AbsolutePath | None, Field(json_schema_extra=RESTART)] = None

    @field_validator("listen_addresses")
    @classmethod
    def _addresses_differ(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for address, count in Counter(addresses).items():
            if count > 1 and not address.endswith(":0"):
                raise ValueError(f'has "{address}" twice: remove one')
        return addresses


class LogSection(Section):
    """The agent's own log, on standard error."""

    level: Annotated[LogLevel, _choice(LogLevel)] = LogLevel.INFO
    format: Annotated[LogFormat, _choice(LogFormat), Field(json_schema_extra=RESTART)] = LogFormat.AUTO


class PathSection(Section):
    """Where the agent keeps and finds things. `None` for `state` and `runtime`: chosen by `app.directories`."""

    state: Annotated[AbsolutePath | None, Field(json_schema_extra=RESTART)] = None
    runtime: Annotated[AbsolutePath | None, Field(json_schema_extra=RESTART)] = None
    sysfs: Annotated[AbsolutePath, Field(json_schema_extra=RESTART)] = Path("/sys")
    procfs: Annotated[AbsolutePath, Field(json_schema_extra=RESTART)] = Path("/proc")


class Config(Section):
    """The whole file."""

    mode: Annotated[Mode, AfterValidator(_usable_mode), _choice(Mode)] = Mode.ADVISE
    node: NodeSection = NodeSection()
    gpu: GpuSection = GpuSection()
    filesystems: FilesystemSection = FilesystemSection()
    host: HostSection = HostSection()
    reader: ReaderSection = ReaderSection()
    attribution: AttributionSection = AttributionSection()
    web: WebSection = WebSection()
    log: LogSection = LogSection()
    paths: PathSection = PathSection()


class Key(Section):
    """One leaf of the configuration."""

    name: str
    """Dotted, as in `gpu.interval`."""
    default: Any
    restart: bool


def subsection(model: type[Section], name: str) -> type[Section] | None:
    """Return the model of section `name` of `model`, None if it is a leaf or unknown."""
    field = model.model_fields.get(name)
    annotation = field.annotation if field else None
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


def keys(model: type[Section] = Config, prefix: str = "") -> Iterator[Key]:
    """Yield every leaf key below `model`, in the order of the file."""
    for name, field in model.model_fields.items():
        if (section := subsection(model, name)) is not None:
            yield from keys(section, f"{prefix}{name}.")
        else:
            extra = field.json_schema_extra
            restart = isinstance(extra, dict) and bool(extra.get("restart"))
            yield Key(name=prefix + name, default=field.default, restart=restart)
