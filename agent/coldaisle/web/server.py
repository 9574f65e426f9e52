"""Uvicorn inside the agent's own event loop: several sockets, no signals, and a configuration that may be swapped.

A configuration that changes gets a server generation of its own on duplicates of the listening sockets: the new one
accepts before the old one stops, so no connection is refused, and no request meets half of each configuration.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from coldaisle.config.web_file import WebConfig
from coldaisle.domain.clock import Clock, SystemClock
from coldaisle.web.guard import Guard

STOP_SECONDS = 0.8
"""How long requests in progress may take when the server stops: the port must be free within a second."""
_KEEP_ALIVE = 75
"""Seconds that an idle connection stays, above the usual scrape intervals: a TLS handshake costs far more than a
scrape."""
_PATIENCE = 10.0
"""Seconds that connections of a former configuration may take to end; a slow client holds up nobody here."""
_POLL = 0.02


class WebServer:
    """Serves one application on sockets made beforehand (`listen.bind`).

    Args:
        app: the application, without any knowledge of TLS and authentication.
        sockets: listening sockets; the server closes them in `stop`.
        config: TLS, users, headers.
        clock: time for the rate limit.
    """

    def __init__(
        self,
        app: ASGIApp,
        sockets: Sequence[socket.socket],
        config: WebConfig | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._app = app
        self._sockets = list(sockets)
        self._clock = clock or SystemClock()
        self._swapping = asyncio.Lock()
        self._generation: _Generation | None = None
        self._ending: dict[asyncio.Task[None], _Generation] = {}
        self.config = config or WebConfig()
        self.started = asyncio.Event()
        """Set once connections are answered."""

    @property
    def addresses(self) -> list[str]:
        """Where it listens, as `host:port`."""
        return [_address(listener) for listener in self._sockets]

    async def start(self) -> None:
        """Answer connections; when this returns, it does.

        Raises:
            OSError: a socket cannot be used.
        """
        async with self._swapping:
            self._generation = await self._begin(self.config)
        self.started.set()

    async def apply(self, config: WebConfig) -> None:
        """Take another configuration up: TLS, users and headers change together, for new connections at once.

        Connections from before finish the request they are in and are closed.

        Raises:
            OSError: the new one cannot start; the old one goes on.
        """
        async with self._swapping:
            old = self._generation
            if old is None:
                self.config = config
                return
            self._generation = await self._begin(config)
            self.config = config
            await old.stop_accepting()
            task = asyncio.create_task(old.end(_PATIENCE, fresh=True), name="web-generation-end")
            self._ending[task] = old
            task.add_done_callback(self._ending.pop)

    async def stop(self) -> None:
        """Free the ports at once and end within a second, however many clients hold connections open."""
        async with self._swapping:
            self.started.clear()
            generation, self._generation = self._generation, None
            if generation is not None:
                await generation.stop_accepting()
            for listener in self._sockets:
                listener.close()
            for former in self._ending.values():
                former.hurry(STOP_SECONDS)
            ends = [generation.end(STOP_SECONDS)] if generation is not None else []
            await asyncio.gather(*ends, *self._ending)

    async def _begin(self, config: WebConfig) -> "_Generation":
        guard = Guard(self._app, config, self._clock)
        generation = _Generation(guard, config)
        try:
            await generation.begin([listener.dup() for listener in self._sockets])
        except BaseException:
            guard.close()
            raise
        return generation


class _Generation(uvicorn.Server):
    """Uvicorn with one configuration, started and ended by us instead of by signals."""

    def __init__(self, guard: Guard, web: WebConfig) -> None:
        self._guard = guard
        context = web.context

        def factory(_config: uvicorn.Config, _default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
            assert context is not None
            return context

        def protocol(*args: Any, **options: Any) -> HttpToolsProtocol:
            made = _Protocol(*args, **options)
            made.allowed_sans = web.allowed_sans
            made.generation = self
            return made

        super().__init__(
            uvicorn.Config(
                guard,
                http=protocol,  # type: ignore[arg-type]  # uvicorn calls it as it would the class
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE,
                ssl_context_factory=factory if context is not None else None,
            )
        )
        self._duplicates: list[socket.socket] = []
        self._dates: asyncio.Task[None] | None = None
        self._deadline = float("inf")
        self.ended = False

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to the agent."""
        yield

    async def begin(self, sockets: list[socket.socket]) -> None:
        """Accept connections on the sockets, which it owns from now on."""
        self._duplicates = sockets
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        try:
            await self.on_tick(0)
            await self.startup(sockets)
        except BaseException:
            await self.stop_accepting()
            raise
        self._dates = asyncio.create_task(self._keep_date(), name="web-date")

    async def _keep_date(self) -> None:
        # Uvicorn's own loop wakes ten times a second; the Date header needs one.
        while True:
            await asyncio.sleep(1)
            await self.on_tick(0)

    async def stop_accepting(self) -> None:
        """Close its listening sockets; connections that it has accepted go on."""
        loop = asyncio.get_running_loop()
        for duplicate in self._duplicates:
            # asyncio makes the transport an iteration after it accepted, and loses the connection if the server was
            # closed in between. (uvloop does both at once and knows no reader here.)
            loop.remove_reader(duplicate)
        for _ in range(3):
            await asyncio.sleep(0)
        for server in getattr(self, "servers", ()):
            server.close()
        for duplicate in self._duplicates:
            duplicate.close()

    def hurry(self, seconds: float) -> None:
        """Let an `end` that goes on take that long at most from now."""
        self._deadline = min(self._deadline, asyncio.get_running_loop().time() + seconds)

    async def end(self, seconds: float, *, fresh: bool = False) -> None:
        """Let requests in progress finish for that long, then cut; close idle connections at once.

        Args:
            seconds: how long.
            fresh: whether connections that have not asked anything yet may still do so, once. Their clients would
                not expect to be cut; one that has had an answer knows that an idle connection may close.
        """
        self.hurry(seconds)
        self._close_idle(fresh=fresh)
        while self._busy() and asyncio.get_running_loop().time() < self._deadline:
            await asyncio.sleep(_POLL)
            self._close_idle(fresh=fresh)
        self.ended = True
        for task in tuple(self.server_state.tasks):
            task.cancel()
        for connection in tuple(self.server_state.connections):
            # A client that never answers TLS's goodbye, or never ends its request.
            connection.transport.abort()
        if self._dates is not None:
            self._dates.cancel()
            with suppress(asyncio.CancelledError):
                await self._dates
        self._guard.close()

    def _close_idle(self, *, fresh: bool) -> None:
        for connection in tuple(self.server_state.connections):
            assert isinstance(connection, _Protocol)
            # Uvicorn's `cycle` is the request that is or was last answered; it closes after the one in progress.
            if (connection.cycle is not None or not fresh) and not connection.transport.is_closing():
                connection.shutdown()

    def _busy(self) -> bool:
        return bool(self.server_state.connections or self.server_state.tasks)


class _Protocol(HttpToolsProtocol):
    """One connection. Refuses client certificates without an allowed name as soon as the handshake is over."""

    allowed_sans: frozenset[str] = frozenset()
    generation: _Generation

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        """Take the connection, or cut it."""
        super().connection_made(transport)
        refused = self.allowed_sans and not self.allowed_sans & _names(transport.get_extra_info("peercert"))
        # A handshake may outlast the configuration that it began under.
        if refused or self.generation.ended:
            transport.abort()


def _names(certificate: dict[str, Any] | None) -> set[str]:
    """Return the subject alternative names (DNS, e-mail, IP, URI) of a client certificate."""
    names = set()
    for kind, value in (certificate or {}).get("subjectAltName", ()):
        names.add(value)
        if kind == "IP Address":
            # OpenSSL spells IPv6 in full; people write it short.
            with suppress(ValueError):
                names.add(str(ipaddress.ip_address(value)))
    return names


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
