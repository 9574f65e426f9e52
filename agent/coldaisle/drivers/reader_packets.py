"""Checks the reader's packets and turns them into events. Pure."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from coldaisle.domain.events import Event, Severity
from coldaisle.domain.readings import Source
from coldaisle.metrics.xids import explain

MAX_PACKET = 8_192
_TEXT_LIMIT = 400
_MAX_FACTS = 8
_MAX_SOURCES = 16
_BIG = 1 << 62

# kind -> severity, sentence; `{where}` is the GPU, device or process concerned.
_LOG_MESSAGES: dict[str, tuple[Severity, str]] = {
    "sxid": (Severity.WARNING, "SXid {code} on {where}: NVSwitch error; see the fabric manager's log"),
    "gpu_lost": (Severity.CRITICAL, "GPU {where} no longer answers on PCIe (fallen off the bus)"),
    "gpu_init_failed": (Severity.CRITICAL, "the driver could not initialise GPU {where}"),
    "api_mismatch": (Severity.WARNING, "driver library and kernel module differ, seen by {where}"),
    "oom_kill": (Severity.WARNING, "the kernel ran out of memory and killed {where}"),
    "filesystem_read_only": (
        Severity.CRITICAL,
        "the filesystem on {where} was stopped or made read-only",
    ),
    "filesystem_error": (Severity.WARNING, "filesystem error on {where}"),
    "io_error": (Severity.WARNING, "I/O error on {where}"),
    "nouveau": (Severity.INFO, "the nouveau driver holds GPU {where}: NVIDIA's cannot"),
}


class SourceStatus(NamedTuple):
    """One source as the reader reports it; `lag` in seconds, totals over all readers since the client was made."""

    source: str
    state: str
    reason: str
    remedy: str
    lag: float
    lines: int
    lost: int
    suppressed: int
    malformed: int
    position: dict[str, Any]
    carried: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Totals of earlier readers, contained in the ones above."""

    def carry(self) -> "SourceStatus":
        """Return the same with its totals made those of earlier readers: a new reader counts from 0."""
        return self._replace(carried=(self.lines, self.lost, self.suppressed, self.malformed))


def parse_packet(packet: bytes) -> dict[str, Any] | None:
    """Return the packet if it is a message of a known kind."""
    if len(packet) > MAX_PACKET:
        return None
    try:
        message = json.loads(packet)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or message.get("k") not in ("hello", "event", "status"):
        return None
    return message


def parse_sources(message: dict[str, Any], before: tuple[SourceStatus, ...]) -> tuple[SourceStatus, ...]:
    """Return the status of every well-formed source in a status message."""
    carried = {status.source: status.carried for status in before}
    raw = message.get("sources")
    statuses = []
    for entry in raw[:_MAX_SOURCES] if isinstance(raw, list) else []:
        if not isinstance(entry, dict) or not (name := _text(entry.get("source"))):
            continue
        base = carried.get(name, (0, 0, 0, 0))
        totals = tuple(
            _count(entry.get(key)) + old
            for key, old in zip(("lines", "lost", "suppressed", "malformed"), base, strict=True)
        )
        position = entry.get("position")
        statuses.append(
            SourceStatus(
                name,
                _text(entry.get("state")) or "failed",
                _text(entry.get("reason")),
                _text(entry.get("remedy")),
                _seconds(entry.get("lag")) or 0.0,
                *totals,  # type: ignore[arg-type,misc]  # four numbers, by the strict zip above
                position=position if isinstance(position, dict) else {},
                carried=base,
            )
        )
    return tuple(statuses)


def to_event(message: dict[str, Any], uuid_of: Callable[[str], str | None]) -> Event | None:
    """Return the event in an event message, None if it is malformed.

    Xids become kind `xid`, name `xid_N`; the rest kind `log`, name after the message. Facts: `message` (the kind),
    `count` (how many log lines it stands for), `bdf`, `pid`, `process`, `device`, `detail` where known.
    """
    kind, time = _text(message.get("kind")), _seconds(message.get("time"))
    if time is None or (kind != "xid" and kind not in _LOG_MESSAGES):
        return None
    code = message.get("code")
    code = _count(code) if isinstance(code, int) else None
    bdf = _text(message.get("bdf"))
    facts = _facts(message, kind, bdf)
    uuid = uuid_of(bdf) if bdf else None
    if kind == "xid":
        return None if code is None else _xid_event(code, time, facts, uuid, fatal=message.get("fatal"))
    severity, sentence = _LOG_MESSAGES[kind]
    if kind == "sxid" and message.get("fatal") is True:
        severity = Severity.CRITICAL
    where = _text(message.get("device")) or bdf or _text(message.get("process")) or "an unknown device"
    name = kind if code is None else f"{kind}_{code}"
    text = sentence.format(code=code, where=where)
    return Event(time, "log", name, severity, text, Source.KMSG.value, uuid, facts)


def _xid_event(code: int, time: float, facts: tuple[tuple[str, str], ...], uuid: str | None, *, fatal: object) -> Event:
    xid = explain(code)
    severity = xid.severity
    if fatal is False and severity is Severity.CRITICAL:
        severity = Severity.WARNING  # NVLink 5 lines say themselves that they are not fatal
    text = f"Xid {code} on GPU {dict(facts).get('bdf', 'unknown')}: {xid.meaning}"
    facts = (*facts, ("xid", str(code)), ("action", xid.action.value), ("remedy", xid.remedy))
    return Event(time, "xid", f"xid_{code}", severity, text, Source.KMSG.value, uuid, facts)


def _facts(message: dict[str, Any], kind: str, bdf: str) -> tuple[tuple[str, str], ...]:
    pid = message.get("pid")
    known = {
        "message": kind,
        "count": str(max(1, _count(message.get("n")))),
        "bdf": bdf,
        "pid": str(_count(pid)) if isinstance(pid, int) else "",
        "process": _text(message.get("process")),
        "device": _text(message.get("device")),
        "detail": _text(message.get("detail")),
    }
    extra = message.get("facts")
    if isinstance(extra, dict):
        for key in list(extra)[:_MAX_FACTS]:
            known.setdefault(_text(key), _text(extra[key]))
    return tuple((key, value) for key, value in known.items() if key and value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    return "".join(c if c.isprintable() else " " for c in value[:_TEXT_LIMIT])


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _BIG else 0


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
        return None
    return float(value)
