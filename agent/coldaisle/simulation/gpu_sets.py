"""Sets of GPUs as people write them: `3`, `0-3`, `0,2,4-7`, `all`."""

from typing import Any


def parse_gpus(value: Any, count: int) -> list[int]:
    """Return the indices that `value` names. Raises ValueError if it is no such set or has a GPU that is not there."""
    if value == "all":
        return list(range(count))
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f'{value!r} names no GPUs: write 3, "0-3", "0,2" or all')  # noqa: TRY004  one error for callers
    found: set[int] = set()
    for part in str(value).split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f'"{value}" names no GPUs: write 3, "0-3", "0,2" or all')
        # Cut at one past the last GPU: enough to be told below, and "0-999999999" builds no set of a billion.
        found.update(range(min(int(first), count), min(int(last or first), count) + 1))
    if not found or max(found) >= count:
        raise ValueError(f'"{value}" names a GPU that is not there: write 0 to {count - 1}')
    return sorted(found)
