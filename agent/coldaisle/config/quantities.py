"""Quantities as people write them: durations, sizes, addresses, paths.

Each parser raises ValueError with a message that ends in what to write instead; the loader puts file and line
before it.
"""

import re
from pathlib import Path
from typing import Annotated, Any

import durationpy
from pydantic import BeforeValidator, Field

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]i?)?B?")
_SIZE_FACTORS = {"": 1}
for _power, _letter in enumerate("kMGT", start=1):
    _SIZE_FACTORS[_letter] = 1000**_power
    _SIZE_FACTORS[_letter.upper() + "i"] = 1024**_power
_SIZE_FACTORS |= {"K": 1000, "ki": 1024}


def shown(value: Any) -> str:  # noqa: PLR0911  a table of words
    """Say a YAML value back to its author: `the text "yes"`, `the number 5`."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f'the text "{value if len(value) <= 40 else value[:37] + "..."}"'
        case None:
            return "empty"
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return f"a {type(value).__name__}"


def parse_duration(value: Any) -> float:
    """Read a duration such as `30s`, `250ms` or `1m30s` and return seconds."""
    if isinstance(value, str):
        try:
            seconds = float(durationpy.from_str(value).total_seconds())
        except (durationpy.DurationError, OverflowError, ValueError):
            pass
        else:
            if seconds < 0 or value.startswith("-"):
                raise ValueError(f"must not be negative, as {shown(value)} is: write it without the minus")
            return seconds
    elif isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(  # noqa: TRY004  pydantic turns ValueError alone into a problem
            f'needs its unit, {shown(value)} has none: write "{value}s" or "{value}ms"'
        )
    raise ValueError(f'must be a duration, not {shown(value)}: write for example "30s", "250ms" or "1m30s"')


def parse_size(value: Any) -> int:
    """Read a size such as `10GiB`, `64MB` or a plain number of bytes and return bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        return int(float(match[1]) * _SIZE_FACTORS[match[2] or ""])
    raise ValueError(f'must be a size, not {shown(value)}: write for example "64MiB", "10GB" or a number of bytes')


def split_listen_address(address: str) -> tuple[str, int]:
    """Split `host:port`, `:port` or `[ipv6]:port` into host (empty: every interface) and port."""
    host, colon, port = address.rpartition(":")
    example = 'write for example ":10980", "127.0.0.1:10980" or "[::1]:10980"'
    if "/" in address or "@" in address or " " in address:
        raise ValueError(f'is no host and port ("{address}"): {example}')
    if not colon:
        raise ValueError(f'has no port in "{address}": {example}')
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise ValueError(f'has no port from 0 to 65535 in "{address}": {example}')
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f'has an IPv6 address without brackets, "{address}": {example}')
    if "[" in host or "]" in host:
        raise ValueError(f'is no host and port ("{address}"): {example}')
    return host, int(port)


def _listen_address(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f'must be "host:port", not {shown(value)}: write for example ":10980" (in quotes)')  # noqa: TRY004  pydantic turns ValueError alone into a problem
    split_listen_address(value)
    return value


def _absolute_path(value: Any) -> Path:
    if not isinstance(value, str | Path) or not str(value):
        raise ValueError(f"must be a path, not {shown(value)}")
    path = Path(value)
    if not path.is_absolute():
        raise ValueError(f'is relative ("{value}") and would depend on where the agent is started: write it from / on')
    if "\0" in str(value):
        raise ValueError("holds a NUL character: remove it")
    return path


def _list(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, tuple):
        return value
    raise ValueError(f"must be a list, not {shown(value)}: write [first, second]")


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be a name, not {shown(value)}")
    return value


Duration = Annotated[float, BeforeValidator(parse_duration)]
"""Seconds, written with a unit."""
Size = Annotated[int, BeforeValidator(parse_size)]
"""Bytes, written with or without a unit."""
AbsolutePath = Annotated[Path, BeforeValidator(_absolute_path)]
ListenAddress = Annotated[str, BeforeValidator(_listen_address)]
Name = Annotated[str, BeforeValidator(_name)]
Names = Annotated[tuple[Name, ...], BeforeValidator(_list)]
ListenAddresses = Annotated[tuple[ListenAddress, ...], BeforeValidator(_list), Field(min_length=1)]
