"""The page for people at `/`: one node at a glance, made on the server, readable without scripts."""

import base64
import hashlib
import time
from collections.abc import Sequence
from html import escape

from coldaisle.domain.events import Event, Severity
from coldaisle.domain.gpu import GpuState
from coldaisle.domain.health import Health, State
from coldaisle.domain.node import FilesystemView, GpuView, NodeView
from coldaisle.web.page_assets import SCRIPT, STYLE
from coldaisle.web.ports import Settings

MOST_EVENTS = 20
_DASH = "–"  # noqa: RUF001  the typographer's sign for "nothing here"
ABSENT = f'<span class="absent" title="no reading">{_DASH}</span>'

_SCRIPT_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_SCRIPT_HASH}'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_STATE_LOOK = {State.OK: "ok", State.DEGRADED: "warn", State.FAILED: "bad", State.OFF: "", State.STARTING: ""}
_GPU_LOOK = {GpuState.OK: "ok", GpuState.STARTING: "", GpuState.LATE: "warn"}
_SEVERITY_LOOK = {Severity.INFO: "", Severity.WARNING: "warn", Severity.CRITICAL: "bad"}
# From here on a bar is drawn as a warning, and as full: for filesystems, where full is bad.
_NEARLY_FULL, _FULL = 0.85, 0.95
# Degrees of margin left at which a GPU is about to slow down.
_LITTLE_MARGIN = 5


def document(title: str, body: str, refresh_seconds: int = 0) -> str:
    """Return a whole HTML document around a body that is already escaped."""
    refresh = f'<noscript><meta http-equiv="refresh" content="{refresh_seconds}"></noscript>' if refresh_seconds else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<link rel="icon" href="data:,">{refresh}<title>{escape(title)}</title><style>{STYLE}</style></head>'
        f'<body data-refresh="{refresh_seconds}">{body}<script>{SCRIPT}</script></body></html>\n'
    )


def render(node: NodeView, events: Sequence[tuple[int, Event]], now: float, wall: float, settings: Settings) -> str:
    """Return the page.

    Args:
        node: what to show.
        events: numbered events, oldest first; the newest `MOST_EVENTS` are shown, newest first.
        now: CLOCK_MONOTONIC seconds.
        wall: Unix seconds.
        settings: version and refresh.
    """
    main = (
        _banner(node)
        + _state(node, wall)
        + _facts(node)
        + _gpus(node.gpus, node.expected_gpus)
        + _sources(node.sources, now)
        + f'<div class="pair">{_filesystems(node.filesystems)}{_events(events, node.gpus)}</div>'
    )
    product = escape(node.product) or "unknown product"
    body = (
        f"<header><h1>{escape(node.hostname)}</h1><p>{product}, {_count(len(node.gpus), 'GPU')}</p></header>"
        '<p class="banner" id="stale" role="alert" hidden>The agent no longer answers: what follows is old.</p>'
        f"<main>{main}</main>{_footer(settings)}"
    )
    title = f"{node.hostname}: {node.state.value}{' (simulated)' if node.simulated else ''}"
    return document(title, body, settings.refresh_seconds)


def _banner(node: NodeView) -> str:
    found = ""
    if node.simulated:
        found += (
            '<p class="banner" role="note">Simulated machine or recording: none of these GPUs is in this machine.</p>'
        )
    if node.released:
        found += (
            '<p class="banner" role="note">Released: the agent holds no GPU open and reads none. '
            "<code>coldaisle resume</code> takes sampling up again.</p>"
        )
    return found


def _state(node: NodeView, wall: float) -> str:
    look = _STATE_LOOK[node.state]
    if node.sampled_at is None:
        sampled = "not sampled yet"
    else:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(node.sampled_at))
        sampled = f"sampled {moment} UTC, {_age(max(0.0, wall - node.sampled_at))} ago"
    reason = escape(node.reason) or ("All sources answer." if node.state is State.OK else "")
    return (
        f'<div class="state {look}">{_tag(node.state.value, look)}<p>{reason}</p>'
        f'<span class="soft">{sampled}</span></div>'
    )


def _facts(node: NodeView) -> str:
    facts = (
        ("Driver", node.driver_version),
        ("CUDA", node.cuda_version),
        ("NVML", node.nvml_version),
        ("GPUs seen / expected", f"{len(node.gpus)} / {_DASH if node.expected_gpus is None else node.expected_gpus}"),
        ("GPU model", ", ".join(dict.fromkeys(gpu.identity.name for gpu in node.gpus if gpu.identity.name))),
        ("Mode", node.mode),
    )
    rows = "".join(f"<div><dt>{name}</dt><dd>{escape(value) or ABSENT}</dd></div>" for name, value in facts)
    return f"<dl>{rows}</dl>"


def _gpus(gpus: Sequence[GpuView], expected: int | None) -> str:
    if not gpus:
        wanted = f" {expected} expected." if expected else ""
        return f'<section><h2>GPUs</h2><p class="soft">No GPU answers.{wanted}</p></section>'
    heads = (
        '<th scope="col">GPU</th><th scope="col">State</th><th scope="col" class="n">Core</th>'
        '<th scope="col" class="n">HBM</th><th scope="col" class="n">Margin</th>'
        '<th scope="col" class="n">Power / limit</th>'
        '<th scope="col" class="n">Utilization</th><th scope="col" class="n">SM activity</th>'
        '<th scope="col" class="n">Memory used</th><th scope="col" class="n">SM clock</th>'
        '<th scope="col">Clock reasons, remarks</th>'
    )
    rows = "".join(map(_gpu, gpus))
    return _table("GPUs", heads, rows)


def _gpu(gpu: GpuView) -> str:
    identity = gpu.identity
    title = escape(f"{identity.name} {identity.uuid} {identity.pci_bus_id}".strip())
    margin_look = "bad" if gpu.margin is not None and gpu.margin <= _LITTLE_MARGIN else ""
    margin = _number(gpu.margin, " °C")
    remarks = [escape(reason.replace("_", " ")) for reason in gpu.reasons]
    if gpu.reason:
        remarks.append(escape(gpu.reason))
    cells = (
        _number(gpu.temperature, " °C"),
        _number(gpu.memory_temperature, " °C"),
        f'<span class="tag {margin_look}">{margin}</span>' if margin_look else margin,
        _meter(gpu.power, gpu.power_limit, _of(gpu.power, gpu.power_limit, 1, "W")),
        _meter(gpu.utilization, 1.0, _number(gpu.utilization, " %", 100)),
        _meter(gpu.sm_active, 1.0, _number(gpu.sm_active, " %", 100)),
        _meter(gpu.memory_used, gpu.memory_total, _of(gpu.memory_used, gpu.memory_total, 2**-30, "GiB")),
        _number(gpu.sm_clock, " MHz", 1e-6),
    )
    return (
        f'<tr><th scope="row" title="{title}">{identity.index}</th>'
        f"<td>{_tag(gpu.state.value.replace('_', ' '), _GPU_LOOK.get(gpu.state, 'bad'))}</td>"
        f'{"".join(f"""<td class="n">{cell}</td>""" for cell in cells)}'
        f'<td class="wide">{", ".join(remarks) or ABSENT}</td></tr>'
    )


def _sources(parts: Sequence[Health], now: float) -> str:
    fine = [part for part in parts if part.state is State.OK]
    others = sorted((part for part in parts if part.state is not State.OK), key=lambda part: _ORDER[part.state])
    heads = (
        '<th scope="col">Part</th><th scope="col">State</th><th scope="col">Reason</th><th scope="col">What to do</th>'
        '<th scope="col" class="n">Last answer</th>'
    )
    rows = "".join(
        f'<tr><th scope="row">{escape(part.name)}</th><td>{_tag(part.state.value, _STATE_LOOK[part.state])}</td>'
        f"<td>{escape(part.reason) or ABSENT}</td><td>{_action(part.action)}</td>"
        f'<td class="n">{_last(part, now)}</td></tr>'
        for part in others
    )
    good = "".join(f"<li>{escape(part.name)} <small>{_last(part, now)}</small></li>" for part in fine)
    table = _scroll(heads, rows) if rows else ""
    fine_list = f'<ul class="fine" aria-label="ok">{good}</ul>' if good else ""
    title = f"Sources and collectors <small>({len(fine)} of {len(parts)} ok)</small>"
    return f"<section><h2>{title}</h2>{table}{fine_list}</section>"


_ORDER = {State.FAILED: 0, State.DEGRADED: 1, State.STARTING: 2, State.OFF: 3, State.OK: 4}


def _action(text: str) -> str:
    """Escape an action and set its commands, which are between backquotes, as code."""
    if not text:
        return ABSENT
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an odd backquote is no pair
        return escape(text)
    return "".join(f"<code>{escape(part)}</code>" if number % 2 else escape(part) for number, part in enumerate(parts))


def _last(part: Health, now: float) -> str:
    return ABSENT if part.last_success is None else f"{_age(max(0.0, now - part.last_success))} ago"


def _filesystems(views: Sequence[FilesystemView]) -> str:
    heads = (
        '<th scope="col">Mounted on</th><th scope="col">Device</th><th scope="col" class="n">Used</th>'
        '<th scope="col" class="n">Available</th><th scope="col" class="n">Size</th>'
    )
    return _table("Filesystems", heads, "".join(map(_filesystem, views)), "No filesystem is watched.")


def _filesystem(view: FilesystemView) -> str:
    used = None if view.size is None or view.available is None else max(0.0, view.size - view.available)
    share = None if used is None or not view.size else used / view.size
    look = "" if share is None or share < _NEARLY_FULL else ("warn" if share < _FULL else "bad")
    remarks = ('<br><span class="tag">read-only</span>' if view.read_only else "") + (
        f'<br><span class="tag bad">{escape(view.problem)}</span>' if view.problem else ""
    )
    return (
        f'<tr><th scope="row">{escape(view.mountpoint)}{remarks}</th>'
        f"<td>{escape(view.device)} <small>{escape(view.type)}</small></td>"
        f'<td class="n">{_meter(share, 1.0, _number(share, " %", 100), look)}</td>'
        f'<td class="n">{_bytes(view.available)}</td><td class="n">{_bytes(view.size)}</td></tr>'
    )


def _events(events: Sequence[tuple[int, Event]], gpus: Sequence[GpuView]) -> str:
    indexes = {gpu.identity.uuid: gpu.identity.index for gpu in gpus}
    heads = (
        '<th scope="col">Time (UTC)</th><th scope="col">Severity</th><th scope="col">GPU</th><th scope="col">Event</th>'
    )
    rows = []
    for _, event in reversed(events[-MOST_EVENTS:]):
        moment = time.strftime("%m-%d %H:%M:%S", time.gmtime(event.time))
        gpu = ABSENT if event.uuid is None else escape(str(indexes.get(event.uuid, event.uuid)))
        rows.append(
            f"<tr><td class='n'>{moment}</td><td>{_tag(event.severity.value, _SEVERITY_LOOK[event.severity])}</td>"
            f"<td>{gpu}</td><td>{escape(event.message)} <small>{escape(event.name)}</small></td></tr>"
        )
    return _table("Recent events", heads, "".join(rows), "Nothing has happened since the agent started.")


def _footer(settings: Settings) -> str:
    links = (
        ("metrics", "/metrics"),
        ("health", "/health"),
        ("node as JSON", "/api/v1/node"),
        ("events as JSON", "/api/v1/events"),
        ("API", "/docs"),
    )
    shown = "".join(f'<a href="{path}">{name}</a>' for name, path in links)
    return f"<footer>{shown}<span>Coldaisle {escape(settings.version)}</span></footer>"


# -- small parts -----------------------------------------------------------------------------------------------------


def _table(title: str, heads: str, rows: str, empty: str = "") -> str:
    inner = _scroll(heads, rows) if rows else f'<p class="soft">{empty}</p>'
    return f"<section><h2>{title}</h2>{inner}</section>"


def _scroll(heads: str, rows: str) -> str:
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _tag(text: str, look: str) -> str:
    return f'<span class="tag {look}">{escape(text)}</span>'


def _meter(value: float | None, limit: float | None, text: str, look: str = "") -> str:
    if value is None or not limit:
        return text
    width = round(100 * min(1.0, max(0.0, value / limit)))
    bar = f'<span class="bar {look}" aria-hidden="true"><i style="width:{width}%"></i></span>'
    return f'<span class="meter">{text}{bar}</span>'


def _number(value: float | None, unit: str, scale: float = 1) -> str:
    return ABSENT if value is None else f"{value * scale:,.0f}{unit.replace(' ', '&nbsp;')}"


def _of(value: float | None, limit: float | None, scale: float, unit: str) -> str:
    if value is None and limit is None:
        return ABSENT
    of = _DASH if limit is None else f"{limit * scale:,.0f}"
    return f"{_DASH if value is None else f'{value * scale:,.0f}'} <small>/ {of}&nbsp;{unit}</small>"


def _bytes(value: float | None) -> str:
    if value is None:
        return ABSENT
    units = ["PiB", "TiB", "GiB", "MiB", "KiB", "B"]
    while value >= 1_000 and len(units) > 1:
        value /= 1_024
        units.pop()
    return f"{value:.3g}&nbsp;{units[-1]}"


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}&nbsp;{unit}"
    return f"{seconds:.1f}&nbsp;s" if seconds < 10 else f"{seconds:.0f}&nbsp;s"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
