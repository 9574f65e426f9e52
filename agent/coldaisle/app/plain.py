"""Value types to what JSON can say."""

from enum import Enum
from pathlib import PurePath
from typing import Any


def plain(value: Any) -> Any:
    """Return `value` with named tuples as objects, enums as their values, paths as text; absent stays null."""
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "_asdict"):
        return {name: plain(item) for name, item in value._asdict().items()}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    return value
