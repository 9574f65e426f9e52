"""The HTTP side of the agent: its sockets, its application, and its own configuration file taken up on change."""

import asyncio

from coldaisle.app.agent import Agent
from coldaisle.app.options import BindError, RunOptions
from coldaisle.config.web_file import WebConfig, WebFile
from coldaisle.domain.clock import Clock
from coldaisle.domain.errors import ColdaisleError
from coldaisle.domain.events import Event, EventStream, Severity
from coldaisle.metrics.families import Family, Kind, Sample
from coldaisle.web.app import create_app
from coldaisle.web.listen import AddressError, bind
from coldaisle.web.server import WebServer

WEB_RELOAD = Family(
    "coldaisle_web_config_last_reload_successful",
    Kind.GAUGE,
    "1 if the web configuration in use (TLS, users) is the file's, 0 if the last attempt to take it up failed.",
)


class Websites:
    """Serves the agent over HTTP.

    Args:
        agent: what is served.
        options: listen addresses and the web configuration file.
        events: told of reloads.
        clock: time.
    """

    def __init__(self, agent: Agent, options: RunOptions, events: EventStream, clock: Clock) -> None:
        self._agent = agent
        self._addresses = options.config.web.listen_addresses
        self._file = WebFile(options.web_config_file or options.config.web.config_file)
        self._events = events
        self._clock = clock
        self._server: WebServer | None = None
        self._applying: asyncio.Task[None] | None = None
        self._successful = True

    @property
    def addresses(self) -> list[str]:
        """Where it listens."""
        return self._server.addresses if self._server else []

    def samples(self) -> list[Sample]:
        """Return whether the web configuration in use is the file's."""
        return [Sample(WEB_RELOAD, (), int(self._successful))]

    async def start(self) -> None:
        """Bind and serve. Raises BindError or ConfigError with the reason."""
        config = self._file.load()
        try:
            sockets = bind(self._addresses)
        except AddressError as error:
            raise BindError(str(error), remedy=error.remedy) from error
        server = WebServer(create_app(self._agent), sockets, config, self._clock)
        await server.start()
        self._server = server

    def poll(self) -> None:
        """Take the web configuration up if any of its files has changed."""
        if self._file.changed():
            self.reload()

    def reload(self) -> None:
        """Take the web configuration up now; the last good one stays on error."""
        if self._server is None or (self._applying is not None and not self._applying.done()):
            return
        try:
            config = self._file.load()
        except ColdaisleError as error:
            self._successful = False
            self._emit("web_reload_failed", Severity.WARNING, f"the web configuration stays as it was: {error}")
            return
        if config == self._server.config:
            self._successful = True
            return
        self._applying = asyncio.get_running_loop().create_task(self._apply(self._server, config))

    async def _apply(self, server: WebServer, config: WebConfig) -> None:
        try:
            await server.apply(config)
        except OSError as error:
            self._successful = False
            self._emit("web_reload_failed", Severity.WARNING, f"the web configuration cannot be applied: {error}")
            return
        self._successful = True
        self._emit("web_reloaded", Severity.INFO, "the web configuration was taken up")

    async def stop(self) -> None:
        """Free the ports."""
        if self._applying is not None:
            await self._applying
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    def _emit(self, name: str, severity: Severity, message: str) -> None:
        self._events.append(Event(self._clock.wall(), "config", name, severity, message, "agent"))
