"""The composition root of the main process: options in, exit code out."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from coldaisle.app.control import ControlServer, Peer
from coldaisle.app.directories import choose
from coldaisle.app.logging import configure
from coldaisle.app.options import RunOptions
from coldaisle.app.parts import Parts
from coldaisle.app.simulated import SimulatedMachine
from coldaisle.app.websites import Websites
from coldaisle.config.models import Config
from coldaisle.config.reload import Reloader
from coldaisle.domain.clock import SystemClock
from coldaisle.domain.errors import ColdaisleError
from coldaisle.domain.events import Event, Severity
from coldaisle.metrics.families import Sample
from coldaisle.schedule.slow import SlowJobs
from coldaisle.schedule.tick import Tick
from coldaisle.systemd.notify import Notifier

RELEASE_DEADLINE = 12.0
"""Seconds that `release` waits for the children to be gone: SIGTERM's grace and a little for SIGKILL."""
STOP_DEADLINE = 12.0
RECORD_MOST = 3600
"""Seconds of the longest recording: a forgotten one must not fill the disk."""
_LEVELS = {Severity.INFO: "info", Severity.WARNING: "warning", Severity.CRITICAL: "error"}


def run(options: RunOptions) -> int:
    """Run the agent until SIGTERM or SIGINT; returns the exit code. Raises ColdaisleError if it cannot start."""
    config = options.config
    configure(config.log.level, config.log.format)
    directories = choose(config.paths.runtime, config.paths.state)
    machine = None
    if options.simulate:
        machine = SimulatedMachine(
            directories.runtime / "simulator", options.simulate, options.gpus, options.scenario, options.seed
        )
        machine.wait_ready()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_Main(options, Parts(options, directories, SystemClock(), machine)).serve())
    finally:
        if machine is not None:
            machine.stop()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes the event loop: uvloop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415  optional at run time: it only makes scrapes cheaper
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


class _Main:
    """What runs on the event loop, and the order in which it starts and stops."""

    def __init__(self, options: RunOptions, parts: Parts) -> None:
        self._options = options
        self._parts = parts
        self._clock = parts.clock
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("coldaisle")
        self._stop = asyncio.Event()
        self._notifier = Notifier()
        self._ready = False
        self._watchdog_at = 0.0
        self._reload_asked = False

    async def serve(self) -> int:
        """Start everything, run until asked to stop, stop everything."""
        parts = self._parts
        parts.events.listen(self._log_event)
        self._jobs = SlowJobs(self._clock, self._job_failed)
        self._reloader = Reloader(
            self._options.config_path,
            self._apply,
            self._clock,
            initial=self._options.config,
            flags=self._options.flags,
            emit=self._emit,
        )
        agent = parts.assemble(self._reloader, self._extra_samples)
        self._tick = Tick(self._options.config.gpu.interval, self._clock, self._on_tick, on_error=self._tick_failed)
        websites = self._websites = Websites(agent, self._options, parts.events, self._clock)
        control = ControlServer(
            parts.directories.runtime / "control.sock",
            self._handlers(),
            self._log_request,
            handler_timeouts={"record": RECORD_MOST + 60},
        )
        await control.start()
        try:
            await websites.start()
            self._install_signals()
            parts.start()
            self._add_jobs()
            self._jobs.start()
            ticking = asyncio.create_task(self._tick.serve())
            for address in websites.addresses:
                self._log.info("serving", address=address)
            await self._stop.wait()
            self._notifier.stopping()
            self._log.info("stopping")
            # The port first: whoever starts next must find it free, however long a vendor call still takes.
            await websites.stop()
            self._tick.stop()
            ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticking
            self._jobs.stop()
            await parts.stop(STOP_DEADLINE)
        finally:
            await websites.stop()
            await control.stop()
        return 0

    # -- the tick ----------------------------------------------------------------------------------------------------

    async def _on_tick(self, now: float) -> None:
        parts = self._parts
        if self._reload_asked:
            self._reload_asked = False
            self._notifier.reloading()
            self._reloader.reload()
            self._websites.reload()
            self._notifier.ready("reloaded")
        else:
            self._reloader.poll()
            self._websites.poll()
        self._jobs.check_clock()
        await parts.agent.tick(now)
        if not self._ready and parts.agent.ready()[0]:
            self._ready = True
            report = parts.agent.health()
            self._notifier.ready(f"{report.state.value}: {report.reason}" if report.reason else "sampling")
            self._log.info("ready", state=report.state.value, reason=report.reason)
        interval = self._notifier.watchdog_interval
        if interval is not None and now - self._watchdog_at >= interval / 3:
            self._watchdog_at = now
            self._notifier.watchdog()

    def _tick_failed(self, error: Exception) -> None:
        self._log.error("a tick failed", error=f"{type(error).__name__}: {error}", exc_info=error)

    def _job_failed(self, name: str, error: BaseException) -> None:
        self._log.warning("a slow job failed", job=name, error=f"{type(error).__name__}: {error}")

    def _extra_samples(self) -> list[Sample]:
        return [*self._tick.samples(), *self._jobs.samples(), *self._websites.samples()]

    def _add_jobs(self) -> None:
        for seconds, name, job in self._parts.jobs():
            self._jobs.every(seconds, name, job, first=seconds)

    def _emit(self, event: Event) -> None:
        self._parts.events.append(event)

    # -- configuration -------------------------------------------------------------------------------------------------

    def _apply(self, config: Config) -> None:
        configure(config.log.level, config.log.format)
        self._parts.apply(config)
        self._tick.set_interval(config.gpu.interval)

    def _install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._ask_reload)

    def _ask_reload(self) -> None:
        self._reload_asked = True

    # -- control -------------------------------------------------------------------------------------------------------

    def _handlers(self) -> Mapping[str, Callable[[dict[str, Any], Peer], Awaitable[Mapping[str, Any]]]]:
        return {"status": self._status, "release": self._release, "resume": self._resume, "record": self._record}

    async def _status(self, _request: dict[str, Any], _peer: Peer) -> Mapping[str, Any]:
        report = self._parts.agent.health()
        return {
            "state": report.state.value,
            "reason": report.reason,
            "node": self._parts.agent.node(),
            "health": report,
        }

    async def _release(self, _request: dict[str, Any], _peer: Peer) -> Mapping[str, Any]:
        agent = self._parts.agent
        agent.release()
        try:
            async with asyncio.timeout(RELEASE_DEADLINE):
                while not agent.handles_closed():  # noqa: ASYNC110  a process's end is found by asking
                    await asyncio.sleep(0.05)
        except TimeoutError:
            stuck = ", ".join(str(pid) for pid in agent.supervisor.undertaker.stuck)
            raise ColdaisleError(
                f"a vendor child is stuck in the driver (pid {stuck}); its handles stay open until the call returns",
                remedy="look at `dmesg` and `cat /proc/PID/stack`; the driver may need a reboot",
            ) from None
        return {"released": True}

    async def _record(self, request: dict[str, Any], _peer: Peer) -> Mapping[str, Any]:
        """Have the vendor child write its answers to a file for a while; sampling goes on."""
        path, seconds = request.get("path"), request.get("duration")
        if not isinstance(path, str) or not path.startswith("/") or not isinstance(seconds, int | float):
            raise ColdaisleError("record needs an absolute path and a duration in seconds")
        if not 0 < seconds <= RECORD_MOST:
            raise ColdaisleError(f"a recording takes up to {RECORD_MOST} seconds", remedy="give a shorter --duration")
        parts = self._parts
        if parts.supervisor.released:
            raise ColdaisleError("vendor handles are released", remedy="run `coldaisle resume` first")
        if parts.recording:
            raise ColdaisleError(f"already recording to {parts.recording}", remedy="wait for it to end")
        parts.record(path)
        try:
            await asyncio.sleep(seconds)
        finally:
            parts.record("")
        return {"path": path}

    async def _resume(self, _request: dict[str, Any], _peer: Peer) -> Mapping[str, Any]:
        return self._parts.agent.resume()

    # -- log -----------------------------------------------------------------------------------------------------------

    def _log_event(self, event: Event) -> None:
        method = getattr(self._log, _LEVELS[event.severity])
        method(event.message, event_name=event.name, kind=event.kind, source=event.source, uuid=event.uuid or "")

    def _log_request(self, op: str, peer: Peer, outcome: str) -> None:
        self._log.info("control request", op=op, uid=peer.uid, pid=peer.pid, outcome=outcome)
