"""The reader's loop: waits for sources and for the end, reads, classifies, forwards, reports."""

import json
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from coldaisle.reader.forwarder import Forwarder
from coldaisle.reader.kernel_messages import classify
from coldaisle.reader.kmsg import Batch, KernelLog
from coldaisle.reader.positions import PositionFile

STATUS_EVERY = 3.0
POLL_EVERY = 0.25
"""Seconds between looks at a source that cannot be waited for, and between tries at one that cannot be opened."""


class ReaderLoop:
    """Reads one kernel log until the peer is gone or `stop`.

    Args:
        source: the kernel log.
        channel: SOCK_SEQPACKET to the main process.
        positions: where the position is kept.
        clock: monotonic seconds.
        wall: Unix seconds.
    """

    def __init__(
        self,
        source: KernelLog,
        channel: socket.socket,
        positions: PositionFile,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._channel = channel
        self._positions = positions
        self._clock = clock
        self._wall = wall
        self._forwarder = Forwarder(self._send)
        self._selector = selectors.DefaultSelector()
        self._watched: tuple[int, int] | None = None
        self._stopping = False
        self._status_at: float | None = None
        self._drained_at = clock()
        self._behind = True
        self._committed: dict[str, Any] = {}
        channel.setblocking(False)
        self._selector.register(channel, selectors.EVENT_READ)

    def stop(self) -> None:
        """End `run` soon; safe in a signal handler."""
        self._stopping = True
        try:
            self._channel.shutdown(socket.SHUT_RD)
        except OSError:
            return

    def run(self, resume: dict[str, Any] | None = None) -> None:
        """Serve until stopped. `resume` is a newer position than the saved one, if the main process has one."""
        self._source.resume(self._positions.load())
        if resume:
            self._source.resume(resume)
        self._committed = self._source.position()
        self._send({"k": "hello", "path": self._source.path})
        while not self._stopping:
            self.turn()
        self._positions.save(self._committed, self._clock(), force=True)
        self._source.close()
        self._selector.close()

    def turn(self) -> None:
        """Wait once and do what is due."""
        self._watch()
        for key, _ in self._selector.select(self._timeout()):
            if key.fileobj is self._channel and not self._peer_lives():
                self._stopping = True
                return
        now = self._clock()
        batch = self._source.read(now)
        self._take(batch, now)
        sent = self._forwarder.flush(now)
        if self._forwarder.empty:
            self._committed = self._source.position()
        if sent or self._status_at is None or now - self._status_at >= STATUS_EVERY:
            self._status_at = now
            self._send(self.status(now))
        self._positions.save(self._committed, now)

    def _take(self, batch: Batch, now: float) -> None:
        # A live record happened now. The kernel's own stamp serves only for a backlog: its clock drifts by seconds
        # over weeks and stops in suspend, which would keep Xids apart that NVML and the log report together.
        boot = self._wall() - self._clock()
        for record in batch.records:
            if (message := classify(record.text)) is not None:
                happened = boot + (min(record.usec / 1e6, now) if self._behind else now)
                self._forwarder.add(self._source.name, message, happened, record.sequence)
        self._behind = not batch.drained
        if batch.drained:
            self._drained_at = now

    def status(self, now: float) -> dict[str, Any]:
        """Return the status packet."""
        source = self._source
        return {
            "k": "status",
            "sources": [
                {
                    "source": source.name,
                    "state": source.state,
                    "reason": source.reason or self._positions.problem,
                    "remedy": source.remedy,
                    "lag": round(now - self._drained_at, 3) if self._behind else 0.0,
                    "lines": source.lines,
                    "lost": source.lost,
                    "suppressed": self._forwarder.suppressed,
                    "malformed": source.malformed,
                    "foreign": source.foreign,
                    "position": self._committed,
                }
            ],
        }

    def _timeout(self) -> float:
        now = self._clock()
        waits = [STATUS_EVERY if self._status_at is None else max(0.0, self._status_at + STATUS_EVERY - now)]
        if (due := self._forwarder.due_in(now)) is not None:
            waits.append(due)
        if self._behind and self._source.state == "ok":
            waits.append(0.0)
        elif self._watched is None:
            waits.append(POLL_EVERY)
        return min(waits)

    def _watch(self) -> None:
        """Wait for the descriptor that the source has now."""
        fd = self._source.fd if self._source.selectable else None
        wanted = None if fd is None else (fd, self._source.opens)
        if wanted == self._watched:
            return
        if self._watched is not None:
            # The source may have closed it, and epoll lost it with that; unregister copes.
            self._selector.unregister(self._watched[0])
        if fd is not None:
            self._selector.register(fd, selectors.EVENT_READ)
        self._watched = wanted

    def _peer_lives(self) -> bool:
        try:
            return bool(self._channel.recv(4_096))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _send(self, message: dict[str, Any]) -> bool:
        try:
            self._channel.send(json.dumps(message, separators=(",", ":")).encode())
        except BlockingIOError:
            return False
        except OSError:
            self._stopping = True
            return False
        return True
