"""Main's side of the reader process: starts it, keeps it alive, turns its packets into events.

Nothing that arrives is trusted: the reader handles hostile bytes, so its packets are checked like any other input.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coldaisle.domain.clock import Clock
from coldaisle.domain.events import Event
from coldaisle.domain.health import Health, State
from coldaisle.drivers.reader_packets import MAX_PACKET, SourceStatus, parse_packet, parse_sources, to_event

HEALTH_NAME = "kernel-log"
SILENT_AFTER = 15.0
"""Seconds without a packet after which a running reader is taken for stuck (it reports every three)."""
STOP_GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL."""
_BACKOFF_FIRST, _BACKOFF_MAX, _STABLE_AFTER = 0.5, 60.0, 60.0
_PACKETS_PER_WAKEUP = 64
_REAP_EVERY = 0.05


class ReaderStatus:
    """What is known of the reader. Totals go on across its restarts.

    `sources` as last reported; `restarts`, `malformed` (packets) and `events` count since the client was made; `pid` is
    None while no reader runs.
    """

    __slots__ = ("events", "malformed", "pid", "restarts", "sources")

    def __init__(self) -> None:
        self.sources: tuple[SourceStatus, ...] = ()
        self.restarts = 0
        self.malformed = 0
        self.events = 0
        self.pid: int | None = None


class ReaderClient:
    """Supervises one reader.

    Args:
        kmsg: path of the kernel log, a device or a file in its format.
        state_dir: where the reader keeps its position.
        emit: takes each event, on the event loop.
        uuid_of: GPU UUID for a bus id in `00000000:05:00.0` form, None if unknown.
        clock: monotonic time for health, back-off and silence.
        command: what to start instead of the reader (tests); the reader's options are appended.
    """

    def __init__(
        self,
        kmsg: str,
        state_dir: str,
        emit: Callable[[Event], object],
        uuid_of: Callable[[str], str | None],
        clock: Clock,
        *,
        command: tuple[str, ...] = (),
    ) -> None:
        self._kmsg = kmsg
        self._state_dir = state_dir
        self._emit = emit
        self._uuid_of = uuid_of
        self._clock = clock
        self._command = command or (sys.executable, "-s", "-S", "-P", "-m", "coldaisle.app.reader")
        self.status = ReaderStatus()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._backoff = _BACKOFF_FIRST
        self._started_at = 0.0
        self._heard_at: float | None = None
        self._position: dict[str, Any] = {}
        self._ended = ""
        self._stopping = False
        self._reaping: asyncio.Task[None] | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of ours, for the self-metrics."""
        return () if self.status.pid is None else (self.status.pid,)

    def start(self) -> None:
        """Start the reader; must be called on the running event loop. Failures show in health and are retried."""
        self._loop = asyncio.get_running_loop()
        self._stopping = False
        self._spawn()

    async def stop(self) -> None:
        """End the reader: SIGTERM, after ten seconds SIGKILL. Returns when it is gone."""
        self._stopping = True
        self._cancel_timer()
        self._drain()
        if self._process is not None and self._reaping is None:
            self._end_process()
        if self._reaping is not None:
            await self._reaping
        self._close_channel()

    def health(self, now: float) -> list[Health]:
        """Return the verdict on the kernel log; `now` is monotonic seconds."""
        return [self._verdict(now)]

    def _verdict(self, now: float) -> Health:
        heard = self._heard_at
        if self._process is None or self._reaping is not None:
            if self._stopping:
                return Health(HEALTH_NAME, State.OFF, "stopped", last_success=heard)
            return Health(HEALTH_NAME, State.FAILED, self._ended, "it is started again by itself", heard)
        if heard is None or heard < self._started_at:
            return Health(HEALTH_NAME, State.STARTING, "the reader has not reported yet", last_success=heard)
        if now - heard > SILENT_AFTER:
            reason = f"the reader has said nothing for {now - heard:.0f} s"
            return Health(HEALTH_NAME, State.FAILED, reason, "it is restarted by itself", heard)
        return self._source_verdict(heard)

    def _source_verdict(self, heard: float) -> Health:
        for source in self.status.sources:
            if source.state != "ok":
                return Health(HEALTH_NAME, State.FAILED, source.reason or source.state, source.remedy, heard)
            if source.reason:
                return Health(HEALTH_NAME, State.DEGRADED, source.reason, "check the state directory", heard)
            if source.lag > 10.0:
                reason = f"the kernel log floods: {source.lag:.0f} s behind, {source.lost} records lost"
                return Health(HEALTH_NAME, State.DEGRADED, reason, "find what floods it: `dmesg -w`", heard)
        return Health(HEALTH_NAME, State.OK, last_success=heard)

    def _spawn(self) -> None:
        self._timer = None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        options = ["--fd", str(theirs.fileno()), "--kmsg", self._kmsg, "--state-dir", self._state_dir]
        if self._position:
            options += ["--resume", json.dumps(self._position)]
        # The package's own root first: the reader runs without site packages, which saves it start time and memory.
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        try:
            process = subprocess.Popen(  # noqa: S603  our own interpreter and module, no shell
                [*self._command, *options], stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), env=environment
            )
        except OSError as error:
            ours.close()
            self._retry(f"cannot start the reader: {error.strerror}")
            return
        finally:
            theirs.close()
        ours.setblocking(False)
        self._process, self._channel = process, ours
        self._started_at = self._clock.monotonic()
        self.status.pid = process.pid
        self.status.sources = tuple(source.carry() for source in self.status.sources)
        self._running_loop().add_reader(ours.fileno(), self._drain)
        self._watch()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError("start() comes first")
        return self._loop

    def _watch(self) -> None:
        """Look for silence from time to time."""
        now = self._clock.monotonic()
        heard = max(self._heard_at or 0.0, self._started_at)
        if now - heard > 2 * SILENT_AFTER:
            self._end(f"the reader said nothing for {now - heard:.0f} s and was stopped")
        else:
            self._timer = self._running_loop().call_later(SILENT_AFTER / 3, self._watch)

    def _drain(self) -> None:
        """Take what has arrived, a bounded number of packets at a time; the loop calls again for the rest."""
        for _ in range(_PACKETS_PER_WAKEUP):
            if self._channel is None:
                return
            try:
                packet = self._channel.recv(MAX_PACKET + 1)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                self._end("the reader ended")
                return
            self._take(packet)

    def _take(self, packet: bytes) -> None:
        message = parse_packet(packet)
        if message is None:
            self.status.malformed += 1
            return
        self._heard_at = self._clock.monotonic()
        if message["k"] == "event":
            event = to_event(message, self._uuid_of)
            if event is None:
                self.status.malformed += 1
                return
            self.status.events += 1
            self._emit(event)
        elif message["k"] == "status":
            self.status.sources = parse_sources(message, self.status.sources)
            self._position = self.status.sources[0].position if self.status.sources else {}

    def _end(self, reason: str) -> None:
        """Take leave of this reader and plan the next one."""
        self._ended = reason
        self._cancel_timer()
        self._close_channel()
        if self._process is not None and self._reaping is None:
            self._end_process()

    def _end_process(self) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._reaping = self._running_loop().create_task(self._reap(self._process))

    async def _reap(self, process: "subprocess.Popen[bytes]") -> None:
        # Real time, not the injected clock: the kernel's process will not hurry for a test.
        deadline = time.monotonic() + STOP_GRACE
        while process.poll() is None:
            if time.monotonic() > deadline:
                process.kill()
            await asyncio.sleep(_REAP_EVERY)
        self._reaping = None
        self._process = None
        self.status.pid = None
        if self._stopping:
            return
        if self._clock.monotonic() - self._started_at > _STABLE_AFTER:
            self._backoff = _BACKOFF_FIRST
        self._retry(f"{self._ended} ({_describe_exit(process.returncode)})")

    def _retry(self, reason: str) -> None:
        self._ended = f"{reason}; next start in {self._backoff:g} s"
        self.status.restarts += 1
        self._timer = self._running_loop().call_later(self._backoff, self._spawn)
        self._backoff = min(self._backoff * 2, _BACKOFF_MAX)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._running_loop().remove_reader(self._channel.fileno())
            self._channel.close()
            self._channel = None


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
