"""Forwarding, positions and the loop, in-process and as the real process."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import coldaisle
from coldaisle.reader.forwarder import FLUSH_EVERY, PENDING_LIMIT, Forwarder
from coldaisle.reader.kernel_messages import Message
from coldaisle.reader.kmsg import KmsgFile
from coldaisle.reader.loop import ReaderLoop
from coldaisle.reader.positions import PositionFile

XID = "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def line(sequence, text=XID):
    return f"4,{sequence},{sequence * 1000},-;{text}\n".encode()


def xid(code):
    return Message("xid", "x", "00000000:05:00.0", code)


def test_repeats_are_folded_with_their_count():
    """The first goes at once; repeats until the next delivery travel as one packet that counts them."""
    sent = []
    forwarder = Forwarder(lambda packet: sent.append(dict(packet)) or True)
    forwarder.add("k", xid(79), 1.0, 1)
    assert forwarder.flush(10.0)
    for sequence in range(2, 12):
        forwarder.add("k", xid(79), 1.0, sequence)
    assert not forwarder.flush(10.1)
    assert forwarder.flush(10.0 + FLUSH_EVERY)
    assert [(packet["n"], packet["seq"]) for packet in sent] == [(1, 1), (10, 11)]
    assert (forwarder.suppressed, forwarder.dropped) == (9, 0)


def test_what_does_not_fit_is_dropped_and_counted():
    """Distinct messages past the limit are dropped with a count; a full socket keeps the rest."""
    room = [2]
    forwarder = Forwarder(lambda _: room[0] > 0 and not room.insert(0, room.pop(0) - 1))
    for code in range(PENDING_LIMIT + 5):
        forwarder.add("k", xid(code), 1.0, code)
    assert (forwarder.suppressed, forwarder.dropped) == (5, 5)
    assert forwarder.flush(1.0)
    assert not forwarder.empty
    room[0] = 1000
    assert forwarder.flush(2.0)
    assert forwarder.empty


def test_position_is_written_atomically_and_rarely(tmp_path):
    """Positions are saved every few seconds at most, survive garbage, and a read-only directory is a problem line."""
    positions = PositionFile(str(tmp_path), "k")
    positions.save({"seq": 1}, 0.0)
    positions.save({"seq": 2}, 1.0)
    assert PositionFile(str(tmp_path), "k").load() == {"seq": 1}
    positions.save({"seq": 2}, 3.1)
    assert PositionFile(str(tmp_path), "k").load() == {"seq": 2}
    (tmp_path / "k.position").write_bytes(b"\xff{")
    assert PositionFile(str(tmp_path), "k").load() == {}
    missing = PositionFile(str(tmp_path / "none"), "k")
    missing.save({"seq": 1}, 0.0)
    assert "cannot save" in missing.problem


def drain(channel):
    channel.setblocking(False)
    packets = []
    while True:
        try:
            packets.append(json.loads(channel.recv(65536)))
        except BlockingIOError:
            return packets


@pytest.fixture
def channels():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def test_flood_is_bounded_and_fully_accounted(tmp_path, channels):
    """100,000 lines, every tenth an Xid: few packets, bounded memory, and the counts add up exactly."""
    ours, theirs = channels
    path = tmp_path / "kmsg"
    path.write_bytes(b"".join(line(n, XID if n % 10 == 0 else "eth0: link up") for n in range(100_000)))
    now = [0.0]
    loop = ReaderLoop(KmsgFile(str(path)), theirs, PositionFile(str(tmp_path), "k"), lambda: now[0], lambda: 1e9)
    packets = []
    for _ in range(200):
        now[0] += 0.01
        loop.turn()
        packets += drain(ours)
        if not loop._behind:
            break
    now[0] += 5.0
    loop.turn()
    packets += drain(ours)
    events = [packet for packet in packets if packet["k"] == "event"]
    source = [packet for packet in packets if packet["k"] == "status"][-1]["sources"][0]
    assert sum(event["n"] for event in events) == 10_000
    assert source["lines"] == 100_000
    assert source["lost"] == 0
    assert source["suppressed"] == 10_000 - len(events)
    assert len(events) <= 20


def start(path, state, *extra):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "PYTHONPATH": str(Path(coldaisle.__file__).parents[1])}
    command = [sys.executable, "-s", "-S", "-P", "-m", "coldaisle.app.reader", "--fd", str(theirs.fileno())]
    process = subprocess.Popen(
        [*command, "--kmsg", str(path), "--state-dir", str(state), *extra],
        pass_fds=(theirs.fileno(),),
        env=environment,
    )
    theirs.close()
    return process, ours


def receive_until(channel, wanted, seconds=20.0):
    deadline = time.monotonic() + seconds
    packets = []
    while time.monotonic() < deadline:
        if select.select([channel], [], [], 0.1)[0]:
            packet = channel.recv(65536)
            if not packet:
                break
            packets.append(json.loads(packet))
            if wanted(packets):
                return packets
    raise AssertionError(f"not seen in {packets}")


def events_in(packets):
    return [packet["seq"] for packet in packets if packet["k"] == "event"]


def test_process_delivers_once_across_restarts(tmp_path):
    """The real process: hello, events, status; SIGTERM ends it with 0; the next one goes on where it stopped."""
    path = tmp_path / "kmsg"
    path.write_bytes(line(1, "boring") + line(2))
    process, channel = start(path, tmp_path)
    with channel:
        packets = receive_until(channel, lambda p: events_in(p) and p[-1]["k"] == "status")
        assert packets[0]["k"] == "hello"
        assert events_in(packets) == [2]
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    with path.open("ab") as file:
        file.write(line(5, XID.replace("05:00", "06:00")))
    process, channel = start(path, tmp_path)
    with channel:
        packets = receive_until(channel, lambda p: events_in(p) and p[-1]["k"] == "status")
        assert events_in(packets) == [5]
        assert packets[-1]["sources"][0]["lost"] == 2
    assert process.wait(10) == 0, "it ends when its peer is gone"


def test_process_imports_little(tmp_path):
    """The reader's memory is paid on every node: the costly modules stay out of it."""
    script = (
        "import sys, coldaisle.app.reader;"
        "print([m for m in ('dataclasses','asyncio','logging','pydantic','argparse','pathlib','psutil') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(coldaisle.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-s", "-S", "-P", "-c", script], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("arguments", [[], ["--fd"], ["--fd", "x", "--kmsg", "a", "--state-dir", "b"], ["--bad", "1"]])
def test_wrong_usage_is_one_line(arguments):
    """Wrong options end with status 2 and the usage."""
    environment = {**os.environ, "PYTHONPATH": str(Path(coldaisle.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "coldaisle.app.reader", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("usage:")
    assert done.stderr.count("\n") == 1
