"""A file and command-line flags to a `Config`, or every problem at once, each with its line and its remedy."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from coldaisle.config import document
from coldaisle.config.document import Document, Problem
from coldaisle.config.models import Config, Section, subsection
from coldaisle.config.quantities import shown
from coldaisle.domain.errors import ConfigError

# A configuration is a few KiB; more is another file given by mistake, and reading it would cost the agent its memory.
_MOST_BYTES = 1 << 20

FLAGS = {
    "mode": "--mode",
    "web.listen_addresses": "--web.listen-address",
    "web.config_file": "--web.config.file",
    "log.level": "--log.level",
    "log.format": "--log.format",
}
"""Dotted key to the command-line flag that overrides it."""


def load(path: Path | str | None, flags: Mapping[str, Any] | None = None) -> Config:
    """Return the configuration: defaults, overridden by the file, overridden by the flags.

    Args:
        path: the YAML file; None for defaults and flags alone.
        flags: values by dotted key, of `FLAGS`.

    Raises:
        ConfigError: the file or a flag cannot be honoured; `problems` lists everything that is wrong.
    """
    values = {} if path is None else _file_values(Path(path))
    if not flags:
        return Config.model_validate(values)
    for key, value in flags.items():
        *sections, leaf = key.split(".")
        target = values
        for section in sections:
            target = target.setdefault(section, {})
        target[leaf] = value
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        problems = [_describe(details) for details in error.errors(include_url=False)]
        raise ConfigError(
            [f"{_flag(details['loc'])}: {text}" for details, text in zip(error.errors(), problems, strict=True)]
        ) from None


def _flag(location: tuple[str | int, ...]) -> str:
    dotted = ".".join(part for part in location if isinstance(part, str))
    return FLAGS.get(dotted, dotted)


def read_text(path: Path) -> str:
    """Return the file's text.

    Raises:
        ConfigError: it cannot be read, is too large, or is not UTF-8 text.
    """
    try:
        with path.open("rb") as stream:
            raw = stream.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError([f"{path}: no such file; give the right path"]) from None
    except IsADirectoryError:
        raise ConfigError([f"{path}: is a directory; give the file in it"]) from None
    except PermissionError:
        raise ConfigError([f"{path}: permission denied; let the agent's user read it"]) from None
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror or error}"]) from None
    if len(raw) > _MOST_BYTES:
        raise ConfigError([f"{path}: is larger than 1 MiB; is it the right file?"])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path}:{line}: is not UTF-8 text; save it as UTF-8"]) from None


def _file_values(path: Path) -> dict[str, Any]:
    parsed = document.parse(read_text(path))
    problems = list(parsed.problems)
    values: Any = {} if parsed.value is None else parsed.value
    if isinstance(values, dict):
        values = _drop_empty_sections(values, Config)
        problems += _invalid(values, parsed)
    else:
        problems.append(Problem(parsed.line(()), f'must be "section: ..." lines, not {shown(values)}'))
    if problems:
        problems.sort()
        raise ConfigError([f"{path}:{problem.line}: {problem.message}" for problem in problems])
    return dict(values)


def _drop_empty_sections(values: dict[str, Any], model: type[Section]) -> dict[str, Any]:
    """Take a section whose keys are all commented out (YAML: null) as one that says nothing."""
    kept = {}
    for key, value in values.items():
        section = subsection(model, key)
        if section is None:
            kept[key] = value
        elif isinstance(value, dict):
            kept[key] = _drop_empty_sections(value, section)
        elif value is not None:
            kept[key] = value
    return kept


def _invalid(values: dict[str, Any], parsed: Document) -> list[Problem]:
    try:
        Config.model_validate(values)
    except ValidationError as error:
        # A key that YAML already complained about is None here; one problem a line is enough.
        known = {problem.line for problem in parsed.problems}
        found = [
            Problem(parsed.line(details["loc"]), _describe(details, dotted=True))
            for details in error.errors(include_url=False)
        ]
        return [problem for problem in found if problem.line not in known]
    return []


def _describe(details: ErrorDetails, *, dotted: bool = False) -> str:
    location = details["loc"]
    name = _name(location)
    if details["type"] == "extra_forbidden":
        return _unknown_key(location, name)
    text = _explain(details)
    return f'"{name}" {text}' if dotted and name else text


def _name(location: tuple[str | int, ...]) -> str:
    name = ""
    for part in location:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return name


def _explain(details: ErrorDetails) -> str:  # noqa: PLR0911  a table of messages
    """Return what is wrong and what to write, as the rest of a sentence that begins with the key."""
    value, context = details["input"], details.get("ctx", {})
    unit = "s" if isinstance(value, str) else ""
    match details["type"]:
        case "value_error":
            return str(context["error"])
        case "int_type" | "int_from_float" | "int_parsing":
            return f"must be a whole number, not {shown(value)}: write it without quotes, as in 8"
        case "bool_type" | "bool_parsing":
            return f"must be true or false, not {shown(value)}: YAML 1.2 knows only these two words, without quotes"
        case "greater_than_equal":
            return f"must be at least {context['ge']:g}{unit}, not {value}"
        case "less_than_equal":
            return f"must be at most {context['le']:g}{unit}, not {value}"
        case "too_short":
            return "must have at least one entry: add one or remove the key"
        case "model_type" | "model_attributes_type":
            return f"must be a section with keys of its own, not {shown(value)}: indent its keys below it"
        case _:
            return f"is wrong: {details['msg']}, found {shown(value)}"


def _unknown_key(location: tuple[str | int, ...], name: str) -> str:
    *parents, key = (str(part) for part in location)
    model: type[Section] | None = Config
    for parent in parents:
        model = subsection(model, parent) if model else None
    known = list(model.model_fields) if model else []
    if close := get_close_matches(key.lower().replace("-", "_"), known, n=1, cutoff=0.6):
        return f'"{name}" is no key; did you mean "{close[0]}"?'
    where = f"keys of {'.'.join(parents)}" if parents else "keys"
    return f'"{name}" is no key; the {where} are {", ".join(known)}'
