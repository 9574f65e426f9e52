"""Numbers for people. None, which means absent, is a dash everywhere: never a zero."""

ABSENT = "-"


def number(value: float | None, unit: str, digits: int = 0) -> str:
    """Return `value` rounded, with its unit."""
    return ABSENT if value is None else f"{value:.{digits}f} {unit}"


def percent(ratio: float | None) -> str:
    """Return a ratio of 0 to 1 as a percentage."""
    return ABSENT if ratio is None else f"{ratio * 100:.0f} %"


def frequency(hertz: float | None) -> str:
    """Return a clock in MHz, as GPU clocks are quoted."""
    return number(None if hertz is None else hertz / 1e6, "MHz")


def size(count: float | None) -> str:
    """Return bytes in the largest binary unit that leaves one or more."""
    if count is None:
        return ABSENT
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def share(used: float | None, total: float | None, shown: str) -> str:
    """Return `shown` with the percentage that `used` is of `total`, where both are known."""
    return shown if used is None or not total else f"{shown} ({used / total * 100:.0f} %)"
