"""The HTTP application: routes and nothing else. Every answer is made from memory within milliseconds."""

import html
import logging
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import FastAPI, Query, Response
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coldaisle.metrics.exposition import OPENMETRICS_TYPE, TEXT_TYPE
from coldaisle.web import page
from coldaisle.web.models import EventAnswer, EventsAnswer, HealthAnswer, NodeAnswer
from coldaisle.web.negotiation import choose
from coldaisle.web.ports import Agent, Settings

_LOG = logging.getLogger(__name__)
_FRESH = {"cache-control": "no-store"}
_PAGE_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": page.CONTENT_SECURITY_POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def create_app(agent: Agent, settings: Settings | None = None) -> FastAPI:
    """Return the application for a running agent."""
    settings = settings or Settings()
    # FastAPI's own /docs page loads its scripts from the internet, which a machine room does not have.
    app = FastAPI(
        title="Coldaisle",
        version=settings.version,
        description="Read-only view of one DGX node.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_middleware(_Boundary)
    app.add_exception_handler(HTTPException, _plain_error)  # type: ignore[arg-type]  # Starlette's type is too narrow
    app.add_route("/metrics", _metrics(agent), include_in_schema=False)
    _add_people(app, agent, settings)
    _add_probes(app, agent)
    _add_api(app, agent, settings)
    return app


def _metrics(agent: Agent) -> Callable[[Request], Awaitable[Response]]:
    async def metrics(request: Request) -> Response:
        headers = request.headers
        choice = choose(",".join(headers.getlist("accept")), ",".join(headers.getlist("accept-encoding")))
        exposition = agent.exposition()
        if choice.openmetrics:
            body = exposition.openmetrics_gzip() if choice.gzip else exposition.openmetrics()
        else:
            body = exposition.text_gzip() if choice.gzip else exposition.text()
        answer = {
            "content-type": OPENMETRICS_TYPE if choice.openmetrics else TEXT_TYPE,
            "vary": "Accept, Accept-Encoding",
        }
        if choice.gzip:
            answer["content-encoding"] = "gzip"
        return Response(body, headers=answer)

    return metrics


def _add_people(app: FastAPI, agent: Agent, settings: Settings) -> None:
    async def index(_request: Request) -> Response:
        events = list(agent.events.since(agent.events.appended - page.MOST_EVENTS))
        text = page.render(agent.node(), events, agent.clock.monotonic(), agent.clock.wall(), settings)
        return HTMLResponse(text, headers=_PAGE_HEADERS)

    async def docs(_request: Request) -> Response:
        return HTMLResponse(_docs(app), headers=_PAGE_HEADERS)

    app.add_route("/", index, include_in_schema=False)
    app.add_route("/docs", docs, include_in_schema=False)


def _docs(app: FastAPI) -> str:
    rows = []
    for path, methods in app.openapi()["paths"].items():
        for operation in methods.values():
            parameters = ", ".join(parameter["name"] for parameter in operation.get("parameters", ()))
            rows.append(
                f'<tr><td><a href="{html.escape(path)}"><code>{html.escape(path)}</code></a></td>'
                f"<td>{html.escape(operation.get('description', ''))}</td><td>{html.escape(parameters)}</td></tr>"
            )
    table = (
        '<section><h2>HTTP API</h2><p>All read-only; machine-readable description: <a href="/openapi.json">'
        'openapi.json</a>. Also <a href="/metrics"><code>/metrics</code></a>, in Prometheus text 0.0.4 and '
        'OpenMetrics 1.0.</p><div class="scroll"><table><thead><tr><th>Path</th><th>Answer</th><th>Parameters</th>'
        f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div></section>"
    )
    body = f'<header><h1><a href="/">Coldaisle</a></h1></header>{table}'
    return page.document("Coldaisle API", body)


def _add_probes(app: FastAPI, agent: Agent) -> None:
    @app.get("/healthz", response_class=PlainTextResponse, tags=["probes"])
    async def healthz() -> PlainTextResponse:
        """The process is alive."""
        return PlainTextResponse("ok\n", headers=_FRESH)

    @app.get("/readyz", response_class=PlainTextResponse, tags=["probes"], responses={503: {}})
    async def readyz() -> PlainTextResponse:
        """200 once every source has answered or failed once; 503 until then, with what is awaited."""
        ready, awaited = agent.ready()
        if ready:
            return PlainTextResponse("ready\n", headers=_FRESH)
        return PlainTextResponse(f"not ready: {awaited}\n", 503, headers=_FRESH)

    @app.get("/health", tags=["probes"], responses={503: {"model": HealthAnswer}})
    async def health(response: Response) -> HealthAnswer:
        """Every part with state, reason, age and action; 503 if sampling has stopped or no GPU source works."""
        report = agent.health()
        response.headers.update(_FRESH)
        response.status_code = 200 if report.serving else 503
        return HealthAnswer.of(report, agent.clock.monotonic())


def _add_api(app: FastAPI, agent: Agent, settings: Settings) -> None:
    @app.get("/api/v1/node", tags=["api"])
    async def node(response: Response) -> NodeAnswer:
        """What the page shows: the node, its GPUs, filesystems and sources."""
        response.headers.update(_FRESH)
        return NodeAnswer.of(agent.node(), agent.clock.monotonic(), settings.version)

    @app.get("/api/v1/events", tags=["api"])
    async def events(response: Response, since: Annotated[int, Query(ge=0)] = 0) -> EventsAnswer:
        """Events numbered above `since`, oldest first."""
        response.headers.update(_FRESH)
        stream = agent.events
        found = [EventAnswer.of(number, event) for number, event in stream.since(since)]
        missed = max(0, stream.appended - since - len(found))
        return EventsAnswer(last=stream.appended, missed=missed, events=found)

    @app.get("/api/v1/health", tags=["api"])
    async def health(response: Response) -> HealthAnswer:
        """As `/health`, always with status 200."""
        response.headers.update(_FRESH)
        return HealthAnswer.of(agent.health(), agent.clock.monotonic())


async def _plain_error(_request: Request, error: HTTPException) -> Response:
    text = "404 page not found" if error.status_code == 404 else str(error.detail)
    return PlainTextResponse(f"{text}\n", error.status_code, headers=error.headers)


class _Boundary:
    """Answers HEAD like GET without the body, and turns what goes wrong into a plain 500 and one log line."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        head = scope["method"] == "HEAD"
        started = False

        async def sender(message: Message) -> None:
            nonlocal started
            started = True
            if head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._app({**scope, "method": "GET"} if head else scope, receive, sender)
        except Exception:
            _LOG.exception("the answer to %s %s failed", scope["method"], scope["path"])
            if started:
                raise
            await PlainTextResponse("500 internal error\n", 500)(scope, receive, send)
