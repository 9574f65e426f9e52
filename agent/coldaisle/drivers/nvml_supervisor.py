"""Main's side of the vendor child: starts it, ticks it, judges it, and keeps one bad GPU from hiding the others."""

import os
import signal
from collections.abc import Callable
from typing import Any

from coldaisle.domain.gpu import GpuIdentity, GpuState
from coldaisle.domain.health import Health
from coldaisle.drivers.child_process import Child, ProcessChild, Undertaker
from coldaisle.drivers.nvml.flight import CALLS, LIBRARY, FlightRecorder, create
from coldaisle.drivers.nvml_generation import Driver, Generation
from coldaisle.drivers.nvml_health import gpu_health, library_health
from coldaisle.drivers.nvml_prober import Prober
from coldaisle.drivers.quarantine import Quarantine
from coldaisle.metrics.gpu_table import GpuTable

INIT_DEADLINE = 30.0
"""Seconds for nvmlInit: without persistence mode the driver initialises every GPU first, which takes seconds each."""
BACKOFF_FIRST, BACKOFF_MAX = 1.0, 30.0
"""Seconds before a child that failed is started again: doubling from the first to the most."""

CALM = 60.0
"""Seconds without such a death after which the next one counts as a single mishap: as long as the longest back-off
pause twice over."""

_CRASH_REMEDY = "it is probed again by itself; if it stays so, drain the node and reset the GPU"
_STATE_OF_SLUG = {"lost": GpuState.LOST, "reset_required": GpuState.RESET_REQUIRED}


Spawn = Callable[[dict[str, Any], int], Child]


def spawn_process(job: dict[str, Any], flight_fd: int) -> Child:
    """Start the real vendor child."""
    return ProcessChild("coldaisle.app.nvml_child", {**job, "flight": flight_fd}, [flight_fd])


class NvmlSupervisor:
    """Keeps the vendor child running and the GPU table true.

    Args:
        table: receives the values and states.
        vendor: which vendor module the child loads: `{}`, `{"simulator": DIR}`, `{"replay": FILE}`, plus `record`.
        hang_deadline: seconds after which a vendor call counts as hung.
        notify: told `(name, severity, message, uuid)` of what happens.
        watch, unwatch: add and remove a descriptor's reader callback (the event loop's).
        spawn: starts a child; a parameter for tests.
    """

    def __init__(
        self,
        table: GpuTable,
        vendor: dict[str, Any],
        *,
        hang_deadline: float,
        notify: Callable[[str, str, str, str | None], None],
        watch: Callable[[int, Callable[[], None]], None],
        unwatch: Callable[[int], object],
        spawn: Spawn = spawn_process,
        on_xid: Callable[[str, int], None] = lambda _uuid, _xid: None,
    ) -> None:
        self.table = table
        self.driver = Driver()
        self.hang_deadline = hang_deadline
        self.released = False
        self.settled = False
        """True once the library has answered or failed once."""
        self.restarts: dict[str, int] = {}
        self.undertaker = Undertaker()
        self.quarantine = Quarantine()
        self.on_frames: Callable[[], None] = lambda: None
        self._vendor = vendor
        self._notify = notify
        self._watch = watch
        self._unwatch = unwatch
        self._spawn_child = spawn
        self._on_xid = on_xid
        self._now: float = 0.0
        self._generation: Generation | None = None
        self._retired: list[Generation] = []
        self._prober = Prober(self.quarantine, self._launch, self._retire, self._on_probe)
        self._failure: tuple[str, str, str] | None = None
        self._backoff = BACKOFF_FIRST
        self._retry_at = 0.0
        self._tick = 0
        self._last_frame: float | None = None
        self._died_at = float("-inf")
        self._stopped = False

    @property
    def pids(self) -> dict[str, int]:
        """Pid by role of the children that should run."""
        pids = {"nvml": self._generation.child.pid} if self._generation else {}
        return {**pids, **self._prober.pids}

    def complete(self) -> bool:
        """Whether every GPU that can answer has answered the present tick."""
        generation = self._generation
        if generation is None or not generation.hello:
            return generation is None
        return all(
            generation.answered.get(index, -1) >= self._tick
            for index, record in self.table.gpus.items()
            if record.state is GpuState.OK
        )

    def tick(self, now: float) -> None:
        """Start, tick and judge the child. Called once an interval, never blocks."""
        self._now = now
        self.undertaker.look(now)
        self._tick += 1
        if self.released or self._stopped:
            return
        if self._generation is None:
            if now >= self._retry_at:
                self._start(now)
            return
        generation = self._generation
        if not generation.hello:
            if now - generation.started_at > INIT_DEADLINE:
                self._replace("init_hang", now)
                self._failure = (
                    "init_hang",
                    f"nvmlInit has not returned for {INIT_DEADLINE:.0f} s",
                    "check `dmesg` for NVRM messages; the driver may be wedged",
                )
            return
        self._judge(generation, now)
        if self._generation is generation:
            generation.child.send({"op": "tick", "n": self._tick})
            generation.ticked_at = now
        self._prober.look(now)

    def release(self, now: float) -> None:
        """Close every vendor handle: end all children. Idempotent."""
        self.released = True
        self._end_all(now)
        for index in self.table.gpus:
            self.table.set_state(index, GpuState.STARTING)

    def resume(self) -> None:
        """Take up again after `release`."""
        self.released = False
        self.settled = False
        self._backoff, self._retry_at, self._failure = BACKOFF_FIRST, 0.0, None
        self.quarantine.clear()

    def reconfigure(self, vendor: dict[str, Any], now: float) -> None:
        """Have a fresh child read other quantities; the present one goes on until then."""
        self._vendor = vendor
        if self._generation is not None:
            self._replace("reconfigured", now)

    def stop(self, now: float) -> None:
        """End all children for good; `undertaker` says when they are gone."""
        self._stopped = True
        self._end_all(now)

    # -- children ------------------------------------------------------------------------------------------------

    def _end_all(self, now: float) -> None:
        if self._generation is not None:
            self._retire(self._generation, now)
            self._generation = None
        self._prober.stop(now)

    def _launch(
        self, job: dict[str, Any], now: float, on_message: Callable[[Generation, dict[str, Any] | None], None]
    ) -> Generation | None:
        flight_fd = create()
        try:
            child = self._spawn_child({**self._vendor, **job}, flight_fd)
        except OSError as error:
            os.close(flight_fd)
            self._fail("spawn_failed", f"cannot start the vendor child: {error}", "check memory and pid limits", now)
            return None
        generation = Generation(child, FlightRecorder(flight_fd, CALLS), flight_fd, now)
        self._watch(child.fileno(), lambda: self._receive(generation, on_message))
        return generation

    def _receive(self, generation: Generation, on_message: Callable[[Generation, dict[str, Any] | None], None]) -> None:
        for _ in range(64):  # bounded, so that a child gone wild cannot hold the event loop
            try:
                message = generation.child.receive()
            except BlockingIOError:
                return
            if message is None:
                self._unwatch(generation.child.fileno())
                on_message(generation, None)
                return
            on_message(generation, message)

    def _start(self, now: float) -> None:
        self._generation = self._launch({"skip": sorted(self.quarantine.members)}, now, self._on_message)

    def _retire(self, generation: Generation, now: float) -> None:
        self._unwatch(generation.child.fileno())
        self.undertaker.take(generation.child, now)
        generation.close()

    def _replace(self, reason: str, now: float) -> None:
        """End the present child and start the next one at once."""
        self.restarts[reason] = self.restarts.get(reason, 0) + 1
        if self._generation is not None:
            self._retire(self._generation, now)
            self._generation = None
        self._start(now)

    def _fail(self, slug: str, message: str, remedy: str, now: float) -> None:
        if self._failure is None or self._failure[0] != slug:
            self._notify(f"nvml_{slug}", "critical", message, None)
        self._failure = (slug, message, remedy)
        self.settled = True
        self._retry_at = now + self._backoff
        self._backoff = min(self._backoff * 2, BACKOFF_MAX)
        self.table.clear()

    # -- messages ------------------------------------------------------------------------------------------------

    def _on_message(self, generation: Generation, message: dict[str, Any] | None) -> None:
        if generation is not self._generation:
            return
        if message is None:
            self._on_death(generation)
            return
        try:
            self._on_packet(generation, message)
        except (KeyError, TypeError, ValueError):
            self.table.drop("nvml", "malformed", 1)

    def _on_packet(self, generation: Generation, message: dict[str, Any]) -> None:
        kind = message.get("k")
        if kind == "f":
            self._on_frame(generation, message)
        elif kind == "gpu":
            self._on_identity(message)
        elif kind == "down":
            self._on_down(message)
        elif kind == "hello":
            self._on_hello(generation, message)
        elif kind == "xid":
            record = self.table.gpus.get(message["i"])
            if record is not None:
                self._on_xid(record.identity.uuid, int(message["xid"]))
        elif kind == "count":
            self._notify("gpu_count_changed", "warning", f"NVML now sees {message['count']} GPUs", None)
            self._replace("recount", self._now)
        elif kind == "fatal":
            self._generation = None
            self._retire(generation, self._now)
            self._fail(message["slug"], message["message"], message["remedy"], self._now)

    def _on_hello(self, generation: Generation, message: dict[str, Any]) -> None:
        generation.hello = True
        self.settled = True
        self._failure = None
        for index in generation.returning:
            generation.child.send({"op": "add", "i": index})
        self.driver = Driver(message["driver"], message["nvml"], message["cuda"], message["count"])
        for index in [index for index in self.table.gpus if index >= message["count"]]:
            self._set_state(
                index,
                GpuState.MISSING,
                "no longer enumerated by the driver",
                "check `dmesg`, `lspci -d 10de:` and the BMC's log",
            )

    def _on_identity(self, message: dict[str, Any]) -> None:
        known = message["id"]
        identity = GpuIdentity(index=message["i"], **{key: known[key] for key in GpuIdentity._fields if key in known})
        record = self.table.identify(identity, message["sources"])
        record.absent.clear()

    def _on_frame(self, generation: Generation, message: dict[str, Any]) -> None:
        index = message["i"]
        record = self.table.gpus.get(index)
        if record is None:
            return
        generation.answered[index] = self._tick
        record.driver_seconds += message["s"]
        if "a" in message:
            record.absent[message["c"]] = message["a"]
        for reason, count in message.get("d", {}).items():
            self.table.drop("nvml", reason, count)
        self.table.update(index, message["c"], message["t"], message["v"])
        self._last_frame = message["t"]
        self._backoff = BACKOFF_FIRST
        if record.state is not GpuState.OK:
            self.quarantine.free(index)
            self._set_state(index, GpuState.OK)
        if self.complete():
            self.on_frames()

    def _on_down(self, message: dict[str, Any]) -> None:
        index = message["i"]
        if index not in self.table.gpus:
            # Never opened: it has no UUID to be known by, but it must not go unmentioned.
            self.table.identify(GpuIdentity(index, ""), {})
        state = _STATE_OF_SLUG.get(message["slug"], GpuState.FAILING)
        self._set_state(index, state, message["message"], message["remedy"])

    def _set_state(self, index: int, state: GpuState, reason: str = "", remedy: str = "") -> None:
        record = self.table.gpus.get(index)
        before = record.state if record else None
        if not self.table.set_state(index, state, reason, remedy) or (
            before is GpuState.STARTING and state is GpuState.OK
        ):
            return
        severity = "info" if state is GpuState.OK else "warning" if state is GpuState.LATE else "critical"
        name = f"gpu_{state.value}"
        self._notify(
            name,
            severity,
            f"GPU {index}: {state.value}" + (f": {reason}" if reason else ""),
            record.identity.uuid if record else None,
        )

    # -- judging -------------------------------------------------------------------------------------------------

    def _on_death(self, generation: Generation) -> None:
        """The child's end of the channel closed: find out who was in a call, and start anew without them."""
        suspects = {index: call for index in range(LIBRARY) if (call := generation.recorder.pending(index))}
        library = generation.recorder.pending(LIBRARY)
        self._generation = None
        self.undertaker.take(generation.child, self._now)
        status = generation.child.returncode()
        how = f"signal {signal.Signals(-status).name}" if status is not None and status < 0 else "unexpectedly"
        generation.close()
        self.restarts["crash"] = self.restarts.get("crash", 0) + 1
        # A single GPU in a call is the culprit. Of several only one is: until its probe has spoken, each keeps the
        # values that are still young enough.
        state = GpuState.CRASHED if len(suspects) == 1 else GpuState.LATE
        for index, (_, name) in suspects.items():
            self._quarantine(index, at_once=True)
            self._set_state(index, state, f"{name} on it ended the vendor child ({how})", _CRASH_REMEDY)
        calm = self._now - self._died_at > CALM
        self._died_at = self._now
        if suspects or calm:
            # With nobody to blame the first restart is immediate too, so that no GPU misses three intervals; only a
            # child that keeps dying has to wait.
            if not suspects:
                self._notify("nvml_crashed", "warning", f"the vendor child ended ({how}) and was started again", None)
            self._start(self._now)
            self._prober.look(self._now)
            return
        where = f" in {library[1]}" if library else ""
        self._fail("crashed", f"the vendor child ended ({how}){where}", "it is started again with back-off", self._now)

    def _quarantine(self, index: int, *, at_once: bool = False) -> None:
        if index not in self.table.gpus:
            # Never opened: it has no UUID to be known by, but it must not go unmentioned.
            self.table.identify(GpuIdentity(index, ""), {})
        self.quarantine.add(index, self._now, at_once=at_once)

    def _judge(self, generation: Generation, now: float) -> None:
        """Find GPUs that are late or hung; replace the child when nobody answers any more."""
        hung: list[tuple[float, int, str]] = []
        for index in range(self.driver.gpus or 0):
            if index in self.quarantine.members:
                continue
            call = generation.recorder.pending(index)
            record = self.table.gpus.get(index)
            if call is not None and now - call[0] > self.hang_deadline:
                hung.append((call[0], index, call[1]))
            elif (
                record is not None
                and record.state is GpuState.OK
                and generation.answered.get(index, self._tick) < self._tick - 1
            ):
                self._set_state(index, GpuState.LATE, "has not answered for more than one interval")
        if not hung:
            return
        hung.sort()
        answering = [
            i for i, n in generation.answered.items() if n >= self._tick - 1 and i not in self.quarantine.members
        ]
        # While others answer, only the hung threads are given up. When nobody does, the library itself is held by
        # the oldest call: that GPU alone is put aside and the rest get a fresh process.
        for since, index, name in hung if answering else hung[:1]:
            self._quarantine(index)
            self._set_state(
                index,
                GpuState.HUNG,
                f"{name} has not returned for {now - since:.0f} s",
                "check `dmesg` for Xid 119/120; it is probed again by itself",
            )
        if not answering:
            self._replace("hang", now)

    def _on_probe(self, index: int, message: dict[str, Any] | None) -> None:
        record = self.table.gpus.get(index)
        if message is None or not message.get("ok"):
            self.quarantine.failed(index, self._now)
            slug = str(message.get("slug")) if message else ""
            if message and slug in _STATE_OF_SLUG:
                self._set_state(index, _STATE_OF_SLUG[slug], str(message["message"]), str(message["remedy"]))
            elif record is not None and record.state is GpuState.LATE:
                self._set_state(index, GpuState.CRASHED, record.reason, _CRASH_REMEDY)
            return
        self.quarantine.free(index)
        if record is not None and record.state is not GpuState.LATE:
            self.table.set_state(index, GpuState.STARTING)
        running = self._generation
        if running is None:
            return
        if running.recorder.pending(index) is not None:
            self._replace("recovered", self._now)  # its old thread is still stuck in the driver
        elif running.hello:
            running.child.send({"op": "add", "i": index})
        else:
            running.returning.append(index)

    def health(self) -> list[Health]:
        """Verdict on the library, then on each GPU."""
        library = library_health(
            released=self.released,
            failure=self._failure,
            running=self._generation is not None and self._generation.hello,
            stuck=self.undertaker.stuck,
            gpus=self.driver.gpus,
            known=len(self.table.gpus),
            last=self._last_frame,
        )
        return [library, *(gpu_health(index, gpu) for index, gpu in sorted(self.table.gpus.items()))]
