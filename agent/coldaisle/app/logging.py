"""The agent's log: structlog on standard error, for people, for journald, or as JSON.

Libraries that use the standard `logging` (uvicorn, APScheduler) come out the same way. Standard error and not the
journal's socket: systemd reads the `<N>` prefixes, and a container's runtime reads the lines.
"""

import logging
import os
import sys
from typing import Any, TextIO

# structlog imports rich where that is installed: 5 MiB, for tracebacks that are not wanted here. Hide it meanwhile.
_HIDDEN = "rich" not in sys.modules
if _HIDDEN:
    sys.modules["rich"] = None  # type: ignore[assignment]  # the import system's own way to say "not there"
import structlog  # noqa: E402  see above
from structlog.typing import EventDict, Processor, WrappedLogger  # noqa: E402  see above

from coldaisle.config.models import LogFormat, LogLevel  # noqa: E402  see above

if _HIDDEN:
    del sys.modules["rich"]

# sd-daemon(3): syslog's numbers.
_PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}

# Each says at INFO what nobody asks for: one line a job, one line a request.
_QUIET = ("apscheduler", "uvicorn.access", "asyncio", "httpx")


def _journal_line(_logger: WrappedLogger, _name: str, fields: EventDict) -> str:
    """Render `<N>message key=value ...`: the journal adds time, unit and process itself."""
    level = str(fields.pop("level", "info"))
    fields.pop("timestamp", None)
    exception = fields.pop("exception", None)
    text = str(fields.pop("event", ""))
    text += "".join(f" {key}={_logfmt(value)}" for key, value in fields.items())
    if exception:
        text += f"\n{exception}"
    prefix = f"<{_PRIORITIES.get(level, 6)}>"
    # Every line needs its own prefix, or the rest of a traceback would be logged as plain information.
    return "\n".join(prefix + line for line in text.splitlines() or [""])


def _logfmt(value: Any) -> str:
    text = str(value)
    return f'"{text}"' if " " in text or not text else text


def resolve(wanted: LogFormat, stream: TextIO) -> LogFormat:
    """Return the format that `auto` stands for: `journal` if systemd reads `stream`, else `console`."""
    if wanted is not LogFormat.AUTO:
        return wanted
    device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return LogFormat.CONSOLE
    return LogFormat.JOURNAL if (str(found.st_dev), str(found.st_ino)) == (device, inode) else LogFormat.CONSOLE


def configure(level: LogLevel, wanted: LogFormat, stream: TextIO | None = None) -> None:
    """Set up all logging of this process; may be called again after a reload.

    Args:
        level: the least severe that is written.
        wanted: how a line looks.
        stream: where to; None for standard error.
    """
    stream = stream or sys.stderr
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(resolve(wanted, stream), colours=stream.isatty() and "NO_COLOR" not in os.environ),
            ],
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        if getattr(old, "coldaisle", False):
            root.removeHandler(old)
    handler.coldaisle = True  # type: ignore[attr-defined]  # marks ours among handlers that a test runner added
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _renderers(chosen: LogFormat, *, colours: bool) -> list[Processor]:
    if chosen is LogFormat.CONSOLE:
        # Plain tracebacks: rich ones print local variables, and those may hold what should not be in a log.
        return [structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback)]
    if chosen is LogFormat.JSON:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    return [structlog.processors.format_exc_info, _journal_line]
