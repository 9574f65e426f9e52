"""Main's side of the reader: real children, hostile packets, restarts, stopping."""

import asyncio
import json
import os
import signal
import sys

from hypothesis import given
from hypothesis import strategies as st

from coldaisle.domain.clock import FakeClock, SystemClock
from coldaisle.domain.events import Severity
from coldaisle.domain.health import State
from coldaisle.drivers import reader_client
from coldaisle.drivers.reader_client import ReaderClient
from coldaisle.drivers.reader_packets import MAX_PACKET, parse_packet, parse_sources, to_event

BDF = "00000000:05:00.0"
XID = "4,{n},{n}000,-;NVRM: Xid (PCI:0000:05:00): {code}, pid=7, name=python3, text\n"
EVENT = {"k": "event", "kind": "xid", "time": 1.5e9, "n": 3, "bdf": BDF, "code": 79, "pid": None, "detail": "d"}


def uuid_of(bdf):
    return "GPU-1" if bdf == BDF else None


async def until(condition, seconds=20.0):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  the conditions are another process's doings
            await asyncio.sleep(0.02)


def make(tmp_path, events, command=(), clock=None):
    return ReaderClient(
        str(tmp_path / "kmsg"), str(tmp_path), events.append, uuid_of, clock or SystemClock(), command=command
    )


async def test_events_arrive_once_also_after_the_reader_was_killed(tmp_path, monkeypatch):
    """End to end: an Xid in the log becomes an event; SIGKILL of the reader loses and repeats nothing."""
    monkeypatch.setattr(reader_client, "_BACKOFF_FIRST", 0.05)
    (tmp_path / "kmsg").write_text(XID.format(n=1, code=79))
    events = []
    client = make(tmp_path, events)
    client._backoff = 0.05
    client.start()
    await until(lambda: events and client.status.sources and client.status.sources[0].position)
    assert client.health(client._clock.monotonic())[0].state is State.OK
    first = client.pids[0]
    os.kill(first, signal.SIGKILL)
    await until(lambda: client.pids and client.pids[0] != first)
    with (tmp_path / "kmsg").open("a") as file:
        file.write(XID.format(n=4, code=48))
    await until(lambda: len(events) == 2 and client.status.sources[0].lines == 2)
    assert [event.name for event in events] == ["xid_79", "xid_48"]
    assert client.status.sources[0].lost == 2
    assert client.status.restarts == 1
    await client.stop()
    assert client.pids == ()
    assert client.health(client._clock.monotonic())[0].state is State.OFF


async def test_missing_log_is_explained(tmp_path):
    """A log that cannot be read is a failed part with reason and remedy, while the reader lives."""
    client = make(tmp_path, [])
    client.start()
    assert client.health(client._clock.monotonic())[0].state is State.STARTING
    await until(lambda: client.status.sources)
    (health,) = client.health(client._clock.monotonic())
    assert (health.name, health.state) == ("kernel-log", State.FAILED)
    assert "No such file" in health.reason
    assert health.action
    await client.stop()


async def test_reader_that_cannot_start_is_retried(tmp_path):
    """A command that does not exist, or ends at once, shows in health with its exit and grows the pause."""
    client = make(tmp_path, [], command=("/nonexistent/reader",))
    client.start()
    (health,) = client.health(0.0)
    assert health.state is State.FAILED
    assert "cannot start the reader" in health.reason
    await client.stop()
    client = make(tmp_path, [], command=(sys.executable, "-c", "import sys; sys.exit(3)"))
    client.start()
    await until(lambda: client.status.restarts == 1)
    assert "exit status 3" in client.health(0.0)[0].reason
    assert client._backoff > 0.5
    await client.stop()


async def test_garbage_from_the_reader_is_counted(tmp_path):
    """Packets that are no messages are counted and do no harm."""
    script = (
        "import socket, sys, time; s = socket.socket(fileno=int(sys.argv[2]));"
        "[s.send(p) for p in (b'\\xff\\x00', b'[]', b'{}', b'x' * 9000, b'{\"k\":\"event\"}')];"
        's.send(b\'{"k":"status","sources":[{"source":"kernel-log","state":"ok","lag":0}]}\'); s.recv(1)'
    )
    client = make(tmp_path, [], command=(sys.executable, "-c", script))
    client.start()
    await until(lambda: client.status.sources)
    assert client.status.malformed == 5
    await client.stop()


async def test_stubborn_reader_is_killed(tmp_path, monkeypatch):
    """A reader that ignores SIGTERM is gone after the grace period."""
    monkeypatch.setattr(reader_client, "STOP_GRACE", 0.1)
    script = (
        "import signal, socket, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        's = socket.socket(fileno=int(sys.argv[2])); s.send(b\'{"k":"hello"}\'); time.sleep(60)'
    )
    client = make(tmp_path, [], command=(sys.executable, "-c", script))
    client.start()
    await until(lambda: client._heard_at is not None)
    await client.stop()
    assert client.pids == ()


async def test_silent_reader_is_judged_and_replaced(tmp_path):
    """A reader that lives but says nothing is failed in health, and stopped by the watch."""
    clock = FakeClock()
    script = (
        'import socket, sys, time; s = socket.socket(fileno=int(sys.argv[2])); s.send(b\'{"k":"hello"}\'); s.recv(1)'
    )
    client = make(tmp_path, [], command=(sys.executable, "-c", script), clock=clock)
    client.start()
    await until(lambda: client._heard_at is not None)
    clock.advance(31.0)
    assert client.health(clock.monotonic())[0].state is State.FAILED
    client._cancel_timer()
    client._watch()
    await until(lambda: client.status.restarts == 1)
    assert "said nothing" in client.health(clock.monotonic())[0].reason
    await client.stop()


def test_xid_event_says_what_it_means_and_what_to_do():
    """Severity, meaning and remedy come from the catalogue; count and process travel as facts."""
    event = to_event(EVENT, uuid_of)
    assert (event.kind, event.name, event.severity, event.source, event.uuid) == (
        "xid",
        "xid_79",
        Severity.CRITICAL,
        "kmsg",
        "GPU-1",
    )
    facts = dict(event.facts)
    assert (facts["count"], facts["bdf"], facts["xid"], facts["action"]) == ("3", BDF, "79", "reboot_node")
    assert to_event({**EVENT, "code": 149, "fatal": False}, uuid_of).severity is Severity.WARNING
    unknown = to_event({**EVENT, "code": 4242}, uuid_of)
    assert "unknown Xid, contact support" in unknown.message


def test_log_events_are_named_after_the_message():
    """SXids carry their code and severity; an OOM kill names the process."""
    sxid = to_event({**EVENT, "kind": "sxid", "code": 12028, "fatal": True, "device": "nvswitch3"}, uuid_of)
    assert (sxid.kind, sxid.name, sxid.severity) == ("log", "sxid_12028", Severity.CRITICAL)
    oom = to_event({**EVENT, "kind": "oom_kill", "code": None, "bdf": "", "process": "python3"}, uuid_of)
    assert "python3" in oom.message


def test_totals_go_on_across_readers():
    """A new reader counts from 0; what is published never falls."""
    message = {"sources": [{"source": "k", "state": "ok", "lines": 10, "lost": 2}]}
    before = parse_sources(message, ())
    after = parse_sources(message, tuple(status.carry() for status in before))
    assert (after[0].lines, after[0].lost) == (20, 4)
    assert parse_sources(message, after)[0].lines == 20


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary(max_size=MAX_PACKET + 10))
def test_hostile_packets_never_raise(packet):
    """Bytes that are no message give None."""
    message = parse_packet(packet)
    assert message is None or isinstance(message, dict)


@given(st.dictionaries(st.sampled_from([*EVENT, "sources", "device", "process", "facts", "fatal"]), json_values))
def test_hostile_fields_never_raise(fields):
    """Fields of the wrong type are refused or ignored; what passes is bounded and printable."""
    event = to_event({**EVENT, **fields}, uuid_of)
    if event is not None:
        assert len(event.message) < 1000
        assert all(value.isprintable() and len(value) <= 500 for _, value in event.facts)
    parse_sources(fields, ())
    assert json.dumps(fields) is not None
