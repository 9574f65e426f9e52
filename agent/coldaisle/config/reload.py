"""Taking up a changed configuration while everything goes on: all of it or nothing, and visibly.

The file is polled by `stat` each second (a watch would lose symlinks that are swapped and network filesystems) and on
SIGHUP. A changed file is read once it has been the same for two polls: an editor that truncates before it writes
would otherwise have the agent run on an empty file for a second.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from coldaisle.config.loader import load
from coldaisle.config.models import Config, Section, keys
from coldaisle.domain.clock import Clock
from coldaisle.domain.errors import ColdaisleError, ConfigError
from coldaisle.domain.events import Event, Severity

_Signature = tuple[int, int, int, int]


class ReloadState(NamedTuple):
    """What the metrics say. The first load, at start, counts as the first success."""

    successful: bool
    """Whether the last attempt succeeded."""
    success_time: float
    """Unix seconds of the last success."""
    succeeded: int
    failed: int
    problems: tuple[str, ...]
    """Why the last attempt failed; empty if it did not."""
    awaiting_restart: tuple[str, ...]
    """Keys whose new value waits for a restart."""


class Reloader:
    """Keeps the running configuration and replaces it when the file changes.

    Args:
        path: the file; None if there is none, and then nothing ever changes.
        apply: takes the new configuration over at once, without awaiting. If it raises, nothing may have changed.
        clock: wall time for the metrics and events.
        initial: the configuration that the agent started with.
        flags: command-line values by dotted key, which keep overriding the file.
        emit: told of every reload, good or bad.
    """

    def __init__(
        self,
        path: Path | None,
        apply: Callable[[Config], None],
        clock: Clock,
        *,
        initial: Config,
        flags: Mapping[str, Any] | None = None,
        emit: Callable[[Event], None] = lambda _event: None,
    ) -> None:
        self._path = path
        self._apply = apply
        self._clock = clock
        self._flags = dict(flags or {})
        self._emit = emit
        self.config = initial
        self.state = ReloadState(
            successful=True, success_time=clock.wall(), succeeded=0, failed=0, problems=(), awaiting_restart=()
        )
        self._taken = self._settling = self._signature()

    def poll(self) -> None:
        """Reload if the file has changed and come to rest. Call once a second; costs one `stat`."""
        signature = self._signature()
        settled, self._settling = signature == self._settling, signature
        if settled and signature != self._taken:
            self.reload()

    def reload(self) -> bool:
        """Read the file and apply it, changed or not (SIGHUP); True if the configuration is now the file's."""
        if self._path is None:
            return True
        self._taken = self._settling = self._signature()
        try:
            wanted = load(self._path, self._flags)
            usable, awaiting = _without_restart_keys(self.config, wanted)
            self._apply(usable)
        except ConfigError as error:
            return self._fail(error.problems)
        except ColdaisleError as error:
            return self._fail([f"{self._path}: {error}"])
        except Exception as error:  # noqa: BLE001  a reload must never end the agent; the reason goes to event and metric
            return self._fail([f"{self._path}: cannot be applied: {type(error).__name__}: {error}"])
        changed = changed_keys(self.config, usable)
        self.config = usable
        self.state = self.state._replace(
            successful=True,
            success_time=self._clock.wall(),
            succeeded=self.state.succeeded + 1,
            problems=(),
            awaiting_restart=awaiting,
        )
        self._report_success(changed, awaiting)
        return True

    def _signature(self) -> _Signature | None:
        if self._path is None:
            return None
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size, found.st_dev

    def _fail(self, problems: list[str]) -> bool:
        self.state = self.state._replace(successful=False, failed=self.state.failed + 1, problems=tuple(problems))
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        self._emit_event(
            "reload_failed",
            Severity.WARNING,
            f"The configuration was not taken up, the last good one stays: {problems[0]}{more}",
            tuple((f"problem_{number}", problem) for number, problem in enumerate(problems, start=1)),
        )
        return False

    def _report_success(self, changed: tuple[str, ...], awaiting: tuple[str, ...]) -> None:
        message = f"The configuration was taken up; changed: {', '.join(changed) or 'nothing'}."
        if awaiting:
            message += f" These wait for a restart of the agent: {', '.join(awaiting)}."
        facts = (("changed", ",".join(changed)), ("awaiting_restart", ",".join(awaiting)))
        self._emit_event("reload", Severity.WARNING if awaiting else Severity.INFO, message, facts)

    def _emit_event(self, name: str, severity: Severity, message: str, facts: tuple[tuple[str, str], ...]) -> None:
        self._emit(Event(self._clock.wall(), "config", name, severity, message, "agent", facts=facts))


def _value(config: Section, key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def changed_keys(old: Config, new: Config) -> tuple[str, ...]:
    """Return the dotted keys whose values differ."""
    return tuple(key.name for key in keys() if _value(old, key.name) != _value(new, key.name))


def _without_restart_keys(running: Config, wanted: Config) -> tuple[Config, tuple[str, ...]]:
    """Return `wanted` with the running values of keys that need a restart, and which of those differ."""
    frozen = {key.name for key in keys() if key.restart}
    awaiting = tuple(name for name in changed_keys(running, wanted) if name in frozen)
    sections: dict[str, Section] = {}
    for name in awaiting:
        # Keys that need a restart are all `section.key`; a test holds that.
        section, leaf = name.split(".")
        present = sections.get(section, getattr(wanted, section))
        sections[section] = present.model_copy(update={leaf: _value(running, name)})
    return wanted.model_copy(update=sections), awaiting
