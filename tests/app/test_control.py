"""The control socket with well- and ill-behaved clients."""

import asyncio
import json
import os
import socket
import stat
import tempfile
import threading

import pytest
import uvloop

from coldaisle.app import control_client
from coldaisle.app.control import MAX_LINE, ControlServer, Peer
from coldaisle.app.control_client import AccessError, ControlClient, NoAgentError, RefusedError, find_socket
from coldaisle.app.options import BindError
from coldaisle.domain.errors import ColdaisleError
from coldaisle.domain.health import State


async def echo(request, peer):
    return {"said": request.get("say"), "uid": peer.uid, "state": State.OK}


async def refuse(request, peer):
    raise ColdaisleError("not now", remedy="try tomorrow")


async def broken(request, peer):
    raise KeyError("gpu")


async def stuck(request, peer):
    await asyncio.Event().wait()


HANDLERS = {"echo": echo, "release": refuse, "broken": broken, "stuck": stuck}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "control.sock"


@pytest.fixture
def log():
    return []


@pytest.fixture
async def server(path, log):
    server = ControlServer(
        path,
        HANDLERS,
        lambda op, peer, outcome: log.append((op, peer, outcome)),
        idle_timeout=5,
        handler_timeouts={"stuck": 0.01},
    )
    await server.start()
    yield server
    await server.stop()


async def ask(path, op, **fields):
    return await asyncio.to_thread(ControlClient(path, 10).request, op, **fields)


async def send(path, raw):
    """Send raw bytes; return every answer until the server closes or has answered all lines."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(raw)
    writer.write_eof()
    try:
        return [json.loads(line) for line in (await asyncio.wait_for(reader.read(), 10)).splitlines()]
    finally:
        writer.close()


async def test_a_request_is_answered_and_logged(server, path, log):
    """A request reaches its handler with the kernel's word on who asks, and is logged with it."""
    assert await ask(path, "echo", say="hi") == {"said": "hi", "uid": os.getuid(), "state": "ok"}
    assert log == [("echo", Peer(os.getpid(), os.getuid(), os.getgid()), "ok")]


async def test_several_requests_on_one_connection(server, path):
    """Lines are answered in order; garbage between them is answered too and spoils nothing."""
    answers = await send(path, b'{"op":"echo","say":1}\nnot json\n[]\n{"op":7}\n\xff\xfe\n\n{"op":"echo","say":2}\n')
    assert [answer["ok"] for answer in answers] == [True, False, False, False, False, False, True]
    assert answers[1]["remedy"] == 'send one JSON object a line, as {"op": "status"}'
    assert answers[6]["said"] == 2


async def test_a_refusal_carries_its_remedy(server, path, log):
    """What a handler refuses reaches the client as error and remedy."""
    with pytest.raises(RefusedError, match="not now") as caught:
        await ask(path, "release")
    assert caught.value.remedy == "try tomorrow"
    assert log[0][2] == "not now"


async def test_a_bug_in_a_handler_is_answered(server, path):
    """A handler that breaks is answered with a failure, and the socket lives on."""
    with pytest.raises(RefusedError, match="broken failed: KeyError"):
        await ask(path, "broken")
    assert await ask(path, "echo", say=1)


async def test_a_handler_that_hangs_is_given_up(server, path):
    """A handler past its limit is answered with a failure."""
    with pytest.raises(RefusedError, match="took too long"):
        await ask(path, "stuck")


async def test_unknown_operations(server, path):
    """An unknown operation is refused with the nearest one, or all there are."""
    with pytest.raises(RefusedError) as caught:
        await ask(path, "relese")
    assert caught.value.remedy == "did you mean release?"
    with pytest.raises(RefusedError) as caught:
        await ask(path, "x" * 100)
    assert "known are broken, echo" in caught.value.remedy


async def test_a_huge_line_is_refused(server, path):
    """A line above the limit is refused and the connection closed, without the agent growing; a long one below is fine."""
    answers = await send(path, b'{"op":"echo","say":"' + b"x" * (MAX_LINE * 4) + b'"}\n')
    assert [answer["error"] for answer in answers] == ["the request is longer than 64 KiB"]
    long = "x" * (MAX_LINE - 100)
    assert (await ask(path, "echo", say=long))["said"] == long


async def test_deep_nesting_is_refused(server, path):
    """JSON nested beyond the parser's depth is a bad request like any other."""
    answers = await send(path, b"[" * 50_000 + b"\n")
    assert answers[0]["ok"] is False


async def test_a_client_that_leaves(server, path, log):
    """Half a line, or nothing at all, is not a request; the next client is served."""
    assert await send(path, b'{"op":"ec') == []
    assert await send(path, b"") == []
    assert await ask(path, "echo")
    assert len(log) == 1


async def test_a_silent_client_is_dropped(path):
    """A client that says nothing is disconnected after the idle time."""
    server = ControlServer(path, HANDLERS, idle_timeout=0.01)
    await server.start()
    reader, writer = await asyncio.open_unix_connection(path)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await server.stop()


async def test_mode(server, path):
    """The socket is for its owner and group alone."""
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


async def test_a_stale_socket_is_replaced(path):
    """A socket that a killed agent left is replaced."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    server = ControlServer(path, HANDLERS)
    await server.start()
    assert await ask(path, "echo")
    await server.stop()
    assert not path.exists()


async def test_a_live_socket_is_left_alone(server, path):
    """A second agent is refused, and the first one goes on."""
    with pytest.raises(BindError, match="another agent is running"):
        await ControlServer(path, HANDLERS).start()
    assert await ask(path, "echo")


async def test_a_file_is_left_alone(path):
    """A path that is no socket is not removed."""
    path.write_text("precious")
    with pytest.raises(BindError, match="no socket"):
        await ControlServer(path, HANDLERS).start()
    assert path.read_text() == "precious"


async def test_no_directory(tmp_path):
    """A directory that is missing is a clear error."""
    with pytest.raises(BindError, match="cannot open the control socket"):
        await ControlServer(tmp_path / "absent" / "control.sock", HANDLERS).start()


async def test_stop_leaves_a_successors_socket(server, path):
    """An agent that stops late does not remove the socket that its successor has made."""
    path.unlink()
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(str(path))
        await server.stop()
        assert path.exists()


async def test_stop_ends_open_connections(server, path):
    """Stopping does not wait for clients that stay."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b'{"op":"echo"}\n')
    await asyncio.wait_for(reader.readline(), 10)
    await asyncio.wait_for(server.stop(), 10)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()


def test_on_uvloop(path, log):
    """The same under the event loop that the agent runs on, credentials included."""

    async def serve():
        server = ControlServer(path, HANDLERS, lambda op, peer, outcome: log.append(peer.uid))
        await server.start()
        answer = await ask(path, "echo", say=1)
        await server.stop()
        return answer

    assert uvloop.run(serve())["said"] == 1
    assert log == [os.getuid()]


def test_no_agent(path):
    """A missing or dead socket says that no agent answers."""
    with pytest.raises(NoAgentError, match="no agent answers"):
        ControlClient(path).request("status")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(NoAgentError, match="no agent answers"):
        ControlClient(path).request("status")


def test_permission(monkeypatch, path):
    """A socket that this user may not open says so, and what to do."""

    class Denied(socket.socket):
        def connect(self, address):
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "socket", Denied)
    with pytest.raises(AccessError, match="permission denied") as caught:
        ControlClient(path).request("status")
    assert "sudo" in caught.value.remedy


@pytest.mark.parametrize("answer", [b"", b"hello\n", b"[1]\n", b'{"ok": tr'])
def test_a_stranger_on_the_socket(path, answer):
    """Answers that are no agent's are refused as such."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(NoAgentError, match="not an agent's"):
            ControlClient(path).request("status")
        thread.join()


def test_an_agent_that_does_not_answer(path):
    """Silence ends in an error, not in waiting for ever."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(NoAgentError, match="no answer within"):
            ControlClient(path, 0.01).request("status")


def test_where_the_socket_is_looked_for(monkeypatch, tmp_path):
    """A given directory wins; else the first place that has a socket; else the system's, for the message."""
    monkeypatch.setattr(control_client, "SYSTEM_RUNTIME", tmp_path / "system")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert find_socket(tmp_path / "x") == tmp_path / "x" / "control.sock"
    assert find_socket() == tmp_path / "system" / "control.sock"
    (tmp_path / "coldaisle").mkdir()
    (tmp_path / "coldaisle" / "control.sock").touch()
    assert find_socket() == tmp_path / "coldaisle" / "control.sock"
