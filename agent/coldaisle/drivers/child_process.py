"""One child process of ours: started over a SOCK_SEQPACKET pair, ended politely, reaped without waiting.

Killing a client in the middle of a vendor call has wedged drivers: children end by SIGTERM, have ten seconds, and only
then get SIGKILL. One that survives even that (stuck in the kernel) is reported, not waited for.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Protocol

TERM_GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL (DESIGN section 2)."""
RECEIVE_BYTES = 65_536


class Child(Protocol):
    """What the supervisor needs of a child."""

    pid: int

    def fileno(self) -> int:
        """Descriptor of our end of the channel, for the event loop."""
        ...

    def send(self, message: dict[str, Any]) -> bool:
        """Send one message without blocking; False if the child does not take it."""
        ...

    def receive(self) -> dict[str, Any] | None:
        """Return the next message, None at its end; raises BlockingIOError when there is none now."""
        ...

    def returncode(self) -> int | None:
        """Exit status (negative: signal), None while it runs."""
        ...

    def signal(self, number: int) -> None:
        """Send a signal if it still runs."""
        ...

    def close(self) -> None:
        """Close our end of the channel."""
        ...


class ProcessChild:
    """A child as a real process: `python -m MODULE JOB` with `job["channel"]` set to its end of the pair.

    Args:
        module: what to run.
        job: JSON-able arguments.
        pass_fds: descriptors that the child keeps under the same numbers.
    """

    def __init__(self, module: str, job: dict[str, Any], pass_fds: Sequence[int] = ()) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            ours.setblocking(False)
            self._channel = ours
            self._process = subprocess.Popen(  # noqa: S603  our own interpreter and module
                [sys.executable, "-m", module, json.dumps({**job, "channel": theirs.fileno()})],
                pass_fds=[theirs.fileno(), *pass_fds],
                stdin=subprocess.DEVNULL,
                env=_environment(),
            )
        self.pid = self._process.pid

    def fileno(self) -> int:
        """Descriptor of our end."""
        return self._channel.fileno()

    def send(self, message: dict[str, Any]) -> bool:
        """Send one message without blocking."""
        try:
            self._channel.send(json.dumps(message, separators=(",", ":")).encode())
        except OSError:
            return False
        return True

    def receive(self) -> dict[str, Any] | None:
        """Return the next message; a packet that is no JSON object ends the child's credit like its death would."""
        try:
            packet = self._channel.recv(RECEIVE_BYTES)
        except ConnectionError:
            return None
        if not packet:
            return None
        try:
            message = json.loads(packet)
        except ValueError:
            return {}
        return message if isinstance(message, dict) else {}

    def returncode(self) -> int | None:
        """Exit status, None while it runs."""
        return self._process.poll()

    def signal(self, number: int) -> None:
        """Send a signal if it still runs."""
        if self._process.poll() is None:
            self._process.send_signal(number)

    def close(self) -> None:
        """Close our end."""
        self._channel.close()


def _environment() -> dict[str, str]:
    # One malloc arena: with a thread a GPU, glibc would otherwise keep an arena (and its slack) for each.
    return {**os.environ, "MALLOC_ARENA_MAX": "1", "PYTHONUNBUFFERED": "1"}


class Undertaker:
    """Ends children in the background: SIGTERM now, SIGKILL after the grace, then reported as stuck."""

    def __init__(self) -> None:
        self._dying: list[tuple[Child, float, bool]] = []

    @property
    def count(self) -> int:
        """Children that have been told to end and have not yet."""
        return len(self._dying)

    @property
    def stuck(self) -> list[int]:
        """Pids that survived SIGKILL: in uninterruptible sleep inside the driver."""
        return [child.pid for child, _, killed in self._dying if killed]

    def take(self, child: Child, now: float) -> None:
        """Tell a child to end."""
        child.signal(signal.SIGTERM)
        self._dying.append((child, now + TERM_GRACE, False))

    def look(self, now: float) -> None:
        """Reap those that ended, kill those past their grace."""
        living = []
        for child, deadline, was_killed in self._dying:
            if child.returncode() is not None:
                child.close()
                continue
            killed = was_killed
            if now >= deadline and not killed:
                child.signal(signal.SIGKILL)
                killed = True
            living.append((child, deadline, killed))
        self._dying = living
