"""Where the agent keeps its sockets and its state, on a server and on a laptop alike."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from coldaisle.domain.errors import ColdaisleError


class Directories(NamedTuple):
    """`runtime` is gone after a reboot (sockets, the simulated machine), `state` stays (log positions, counters)."""

    runtime: Path
    state: Path


def choose(runtime: Path | None, state: Path | None) -> Directories:
    """Return usable directories, made if need be.

    A directory that the configuration names must be usable; otherwise the system's place is tried first, then the
    user's own. Raises ColdaisleError with a remedy when none can be written.
    """
    user_runtime = os.environ.get("XDG_RUNTIME_DIR")
    runtime_candidates = [Path("/run/coldaisle")]
    if user_runtime:
        runtime_candidates.append(Path(user_runtime) / "coldaisle")
    runtime_candidates.append(Path(tempfile.gettempdir()) / f"coldaisle-{os.getuid()}")
    state_candidates = [Path("/var/lib/coldaisle")]
    if home := os.environ.get("HOME"):
        state_candidates.append(Path(home) / ".local/state/coldaisle")
    state_candidates.append(Path(tempfile.gettempdir()) / f"coldaisle-{os.getuid()}" / "state")
    return Directories(
        _usable([runtime] if runtime else runtime_candidates, "paths.runtime"),
        _usable([state] if state else state_candidates, "paths.state"),
    )


def _usable(candidates: Sequence[Path], key: str) -> Path:
    reasons = []
    for path in candidates:
        try:
            path.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            reasons.append(f"{path}: {error.strerror}")
            continue
        # Someone else's directory under a guessable name in /tmp would let them plant sockets.
        if path.stat().st_uid not in (os.getuid(), 0):
            reasons.append(f"{path}: belongs to another user")
        elif os.access(path, os.W_OK | os.X_OK):
            return path
        else:
            reasons.append(f"{path}: not writable")
    raise ColdaisleError(
        f"no usable directory for {key} ({'; '.join(reasons)})", remedy=f"set {key} to a directory this user can write"
    )
