"""Which GPUs are set aside, and when each is probed again. Pure: time comes in as an argument."""

FIRST_PROBE = 1.0
LAST_PROBE = 300.0
"""Seconds between probes: doubling from the first to the last. A probe loads the driver once; a wedged one should not
be asked more often than an operator would."""


class Quarantine:
    """GPUs by index with their next probe."""

    def __init__(self) -> None:
        self._next: dict[int, tuple[float, float]] = {}

    @property
    def members(self) -> frozenset[int]:
        """Indices set aside now."""
        return frozenset(self._next)

    def add(self, index: int, now: float, *, at_once: bool = False) -> None:
        """Set a GPU aside; its first probe is soon, or at once where it may be innocent."""
        self._next.setdefault(index, (now if at_once else now + FIRST_PROBE, FIRST_PROBE))

    def clear(self) -> None:
        """Take all GPUs back."""
        self._next.clear()

    def failed(self, index: int, now: float) -> None:
        """A probe failed: wait twice as long."""
        if index in self._next:
            wait = min(self._next[index][1] * 2, LAST_PROBE)
            self._next[index] = (now + wait, wait)

    def free(self, index: int) -> None:
        """Take a GPU back."""
        self._next.pop(index, None)

    def due(self, now: float) -> list[int]:
        """Return the indices whose probe is due, the one that has waited longest first."""
        return [index for _, index in sorted((at, index) for index, (at, _) in self._next.items() if now >= at)]
