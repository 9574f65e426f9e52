"""Positions of sources on disk, so that a restart neither repeats nor skips."""

import json
import os
from typing import Any

SAVE_EVERY = 3.0
"""Seconds between two writes of a position that keeps changing."""


class PositionFile:
    """One source's position in `DIRECTORY/NAME.position`, replaced atomically.

    A directory that cannot be written is a problem to report, never a reason to stop: the price is that a restart
    begins at the oldest record again.
    """

    def __init__(self, directory: str, name: str) -> None:
        self._path = os.path.join(directory, f"{name}.position")  # noqa: PTH118  pathlib costs the reader half a MiB
        self._saved: dict[str, Any] = {}
        self._saved_at: float | None = None
        self.problem = ""

    def load(self) -> dict[str, Any]:
        """Return the saved position, empty if there is none that can be used."""
        try:
            with open(self._path, "rb") as file:  # noqa: PTH123  as above
                position = json.loads(file.read(4_096))
        except (OSError, ValueError):
            return {}
        self._saved = position if isinstance(position, dict) else {}
        return self._saved

    def save(self, position: dict[str, Any], now: float, *, force: bool = False) -> None:
        """Write `position` if it changed and the last write is `SAVE_EVERY` ago; `now` is monotonic seconds."""
        if not position or position == self._saved:
            return
        if not force and self._saved_at is not None and now - self._saved_at < SAVE_EVERY:
            return
        self._saved_at = now
        temporary = f"{self._path}.new"
        try:
            with open(temporary, "w", encoding="ascii") as file:  # noqa: PTH123  as above
                file.write(json.dumps(position))
            os.replace(temporary, self._path)  # noqa: PTH105  as above
        except OSError as error:
            self.problem = f"cannot save {self._path}: {error.strerror}"
            return
        self._saved = dict(position)
        self.problem = ""
