"""The scenario file: which loads run and which faults happen when. Strict: every mistake is told with its line."""

import re
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from coldaisle.config.document import Document, parse
from coldaisle.domain.errors import ConfigError
from coldaisle.simulation import faults
from coldaisle.simulation.gpu_sets import parse_gpus
from coldaisle.simulation.physics import LEAST_INLET, MOST_INLET
from coldaisle.simulation.workloads import BY_NAME

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")
_ACTIONS = ("fault", "clear", "load", "inlet")
_ABOUT_EVENTS = {"at", "for", "gpu", "gpus", *_ACTIONS}


class Event(NamedTuple):
    """Something that happens `at` seconds of simulated time."""

    at: float
    action: str
    what: Any
    gpus: tuple[int | None, ...]
    seconds: float | None
    arguments: dict[str, Any]


class Scenario(NamedTuple):
    """A checked scenario; `events` in the order of their time."""

    inlet: float | None
    loads: tuple[tuple[str, tuple[int, ...]], ...]
    events: tuple[Event, ...]


class Stage(Protocol):
    """What a scenario plays on."""

    base_inlet: float

    def fault(self, kind: str, gpu: int | None, seconds: float | None, arguments: dict[str, Any]) -> None:
        """Begin a fault."""

    def clear(self, gpu: int | None, kind: str | None) -> int:
        """End faults."""

    def pin(self, load: str, gpus: list[int]) -> None:
        """Put a load on GPUs."""


class Player:
    """Plays a scenario as time passes.

    Args:
        scenario: what to play.
        stage: the node.
    """

    def __init__(self, scenario: Scenario, stage: Stage) -> None:
        self._events = list(scenario.events)
        self._stage = stage
        if scenario.inlet is not None:
            stage.base_inlet = scenario.inlet
        for load, gpus in scenario.loads:
            stage.pin(load, list(gpus))

    def play(self, now: float) -> None:
        """Let everything happen that is due at `now`."""
        while self._events and self._events[0].at <= now:
            event = self._events.pop(0)
            match event.action:
                case "fault":
                    for gpu in event.gpus:
                        self._stage.fault(event.what, gpu, event.seconds, event.arguments)
                case "clear":
                    for gpu in event.gpus:
                        self._stage.clear(gpu, None if event.what == "all" else event.what)
                case "load":
                    self._stage.pin(event.what, [gpu for gpu in event.gpus if gpu is not None])
                case _:
                    self._stage.base_inlet = event.what


def load_scenario(path: Path, gpus: int) -> Scenario:
    """Read and check a scenario for a machine of `gpus` GPUs. Raises ConfigError with every problem of the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError([f"{path}: {reason}: name a scenario file that can be read"]) from error
    document = parse(text)
    reading = _Reading(document, gpus)
    scenario = reading.scenario()
    problems = [(problem.line, problem.message) for problem in document.problems] + reading.problems
    if problems:
        raise ConfigError([f"{path}:{line}: {message}" for line, message in sorted(problems)])
    return scenario


class _Reading:
    """Turns the document into a scenario and collects what is wrong with it."""

    def __init__(self, document: Document, gpus: int) -> None:
        self._document = document
        self._count = gpus
        self.problems: list[tuple[int, str]] = []

    def _wrong(self, path: tuple[str | int, ...], message: str) -> None:
        self.problems.append((self._document.line(path), message))

    def scenario(self) -> Scenario:
        value = self._document.value
        if value is None:
            return Scenario(None, (), ())
        if not isinstance(value, dict):
            self._wrong((), "a scenario is a mapping with inlet, loads and events")
            return Scenario(None, (), ())
        for key in value:
            if key not in ("description", "inlet", "loads", "events"):
                self._wrong((key,), f'a scenario knows no "{key}": write description, inlet, loads or events')
        inlet = self._celsius(value["inlet"], ("inlet",)) if "inlet" in value else None
        return Scenario(inlet, self._loads(value.get("loads")), self._events(value.get("events")))

    def _celsius(self, value: Any, path: tuple[str | int, ...]) -> float | None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST_INLET <= value <= MOST_INLET:
            span = f"{LEAST_INLET} to {MOST_INLET}"
            self._wrong(path, f"inlet must be degrees Celsius from {span}: write for example inlet: 25")
            return None
        return float(value)

    def _loads(self, value: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
        if value is None:
            return ()
        if not isinstance(value, dict):
            self._wrong(("loads",), 'loads must be a mapping of GPUs to load: write "0-3": train_healthy_bf16')
            return ()
        found = []
        for key, load in value.items():
            gpus = self._gpus(key, ("loads", key))
            if self._is_load(load, ("loads", key)):
                found.append((str(load), gpus))
        return tuple(found)

    def _is_load(self, value: Any, path: tuple[str | int, ...]) -> bool:
        if isinstance(value, str) and (value in BY_NAME or value == "schedule"):
            return True
        self._wrong(path, f'no load is called "{value}": write schedule or one of {", ".join(sorted(BY_NAME))}')
        return False

    def _gpus(self, value: Any, path: tuple[str | int, ...]) -> tuple[int, ...]:
        try:
            return tuple(parse_gpus(value, self._count))
        except ValueError as error:
            self._wrong(path, str(error))
            return ()

    def _events(self, value: Any) -> tuple[Event, ...]:
        if value is None:
            return ()
        if not isinstance(value, list):
            self._wrong(("events",), "events must be a list: begin each with a dash")
            return ()
        found = [self._event(item, ("events", place)) for place, item in enumerate(value)]
        return tuple(sorted((event for event in found if event), key=lambda event: event.at))

    def _event(self, item: Any, path: tuple[str | int, ...]) -> Event | None:
        if not isinstance(item, dict):
            self._wrong(path, "an event is a mapping: write for example {at: 30s, fault: lost, gpu: 3}")
            return None
        actions = [action for action in _ACTIONS if action in item]
        if len(actions) != 1:
            self._wrong(path, f"an event does exactly one of {', '.join(_ACTIONS)}")
            return None
        action = actions[0]
        at = self._seconds(item.get("at"), (*path, "at"))
        lasts = self._seconds(item["for"], (*path, "for")) if "for" in item else None
        if at is None:
            return None
        before = len(self.problems)
        gpus = self._event_gpus(item, path)
        arguments = {key: value for key, value in item.items() if key not in _ABOUT_EVENTS}
        what = self._checked(action, item[action], gpus, arguments, path)
        if "for" in item and action != "fault":
            self._wrong((*path, "for"), f"only a fault lasts: remove for, or end the {action} with another event")
        if len(self.problems) > before:
            return None
        if action == "load" and gpus == (None,):
            gpus = tuple(range(self._count))
        return Event(at, action, what, gpus, lasts, arguments)

    def _event_gpus(self, item: dict[str, Any], path: tuple[str | int, ...]) -> tuple[int | None, ...]:
        if "gpu" in item and "gpus" in item:
            self._wrong((*path, "gpus"), "gpu and gpus say the same: remove one of the two")
        for key in ("gpu", "gpus"):
            if key in item:
                return self._gpus(item[key], (*path, key))
        return (None,)

    def _checked(
        self,
        action: str,
        what: Any,
        gpus: tuple[int | None, ...],
        arguments: dict[str, Any],
        path: tuple[str | int, ...],
    ) -> Any:
        if action == "fault":
            for gpu in gpus[:1]:
                if problem := faults.check(str(what), gpu, self._count, arguments):
                    self._wrong((*path, "fault"), problem)
            return what
        for key in arguments:
            self._wrong((*path, key), f'an event with {action} knows no "{key}": remove it')
        if action == "clear" and not (isinstance(what, str) and (what == "all" or what in faults.KINDS)):
            self._wrong((*path, "clear"), f'no fault is called "{what}": write all or the name of a fault')
        elif action == "load":
            self._is_load(what, (*path, "load"))
        elif action == "inlet":
            return self._celsius(what, (*path, "inlet"))
        return what

    def _seconds(self, value: Any, path: tuple[str | int, ...]) -> float | None:
        match = _DURATION.fullmatch(value) if isinstance(value, str) and value else None
        if match is None:
            self._wrong(path, f'"{path[-1]}" must be a duration: write for example 30s, 250ms or 1m30s')
            return None
        hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
        return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
