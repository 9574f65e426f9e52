"""The control socket: operators' commands as JSON lines, on a Unix socket that only root and the group can open.

One request a line: `{"op": "release"}`; one answer a line: `{"ok": true, ...}` or
`{"ok": false, "error": "...", "remedy": "..."}`. Who asked is known from the kernel (SO_PEERCRED) and logged.
"""

import asyncio
import contextlib
import json
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from coldaisle.app.options import BindError
from coldaisle.app.plain import plain
from coldaisle.domain.errors import ColdaisleError

MAX_LINE = 64 * 1024
"""Bytes of the longest request; requests are tens of bytes."""

_PEER = struct.Struct("3i")


class Peer(NamedTuple):
    """Who is at the other end, as the kernel says."""

    pid: int
    uid: int
    gid: int


Handler = Callable[[dict[str, Any], Peer], Awaitable[Mapping[str, Any]]]
"""Gets the request and who sent it; returns the answer's fields, or raises ColdaisleError to refuse."""


class RequestError(ColdaisleError):
    """A request that makes no sense."""


class ControlServer:
    """Serves the control socket on the running event loop.

    Args:
        path: the socket; its directory must exist.
        handlers: one per `op`.
        log: told of every request: op, peer, and outcome (`ok` or the error).
        idle_timeout: seconds a client may take for its next line.
        handler_timeout: seconds after which a request is answered with a failure.
        handler_timeouts: other times for some ops.
    """

    def __init__(
        self,
        path: Path,
        handlers: Mapping[str, Handler],
        log: Callable[[str, Peer, str], None] = lambda _op, _peer, _outcome: None,
        *,
        idle_timeout: float = 30.0,
        handler_timeout: float = 60.0,
        handler_timeouts: Mapping[str, float] | None = None,
    ) -> None:
        self._path = path
        self._handlers = dict(handlers)
        self._log = log
        self._idle_timeout = idle_timeout
        self._handler_timeout = handler_timeout
        self._handler_timeouts = dict(handler_timeouts or {})
        self._server: asyncio.Server | None = None
        self._inode: int | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Open the socket, replacing one that a dead agent left.

        Raises:
            BindError: an agent is listening there, or the socket cannot be made.
        """
        self._make_way()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The mode must be right from the first moment: between bind and chmod anyone could connect.
        mask = os.umask(0o117)
        try:
            listener.bind(str(self._path))
        except OSError as error:
            listener.close()
            raise BindError(
                f"cannot open the control socket {self._path}: {error.strerror or error}",
                remedy="let the agent's user write its directory, or choose another with paths.runtime",
            ) from None
        finally:
            os.umask(mask)
        self._inode = self._path.stat().st_ino
        self._server = await asyncio.start_unix_server(self._accept, sock=listener, limit=MAX_LINE)

    async def stop(self) -> None:
        """Close the socket, end the connections, and remove the file if it is still this agent's."""
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
        self._server = None

    def _make_way(self) -> None:
        try:
            mode = self._path.lstat().st_mode
        except FileNotFoundError:
            return
        except OSError as error:
            raise BindError(f"cannot look at {self._path}: {error.strerror}", remedy="choose paths.runtime") from None
        if not stat.S_ISSOCK(mode):
            raise BindError(f"{self._path} is there and is no socket", remedy="move it away")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(2)
            try:
                probe.connect(str(self._path))
            except ConnectionRefusedError:
                # Nobody listens: a killed agent left it.
                with contextlib.suppress(FileNotFoundError):
                    self._path.unlink()
                return
            except OSError as error:
                raise BindError(
                    f"{self._path} belongs to another agent: {error.strerror or error}", remedy="choose paths.runtime"
                ) from None
        raise BindError(
            f"another agent is running: it answers on {self._path}",
            remedy="stop it (`systemctl stop coldaisle`), or give this one its own paths.runtime",
        )

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, writer, _peer(writer))
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            # The client went away, fell silent, or the agent stops: either way there is nobody to answer.
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: Peer) -> None:
        while True:
            too_long = False
            line = b""
            try:
                line = await asyncio.wait_for(reader.readline(), self._idle_timeout)
            except ValueError:
                # asyncio's word for a line above the limit; what follows cannot be told apart any more.
                too_long = True
            if too_long:
                answer = _refusal(f"the request is longer than {MAX_LINE // 1024} KiB", "send one JSON object a line")
                self._log("?", peer, "too long")
            elif not line.endswith(b"\n"):
                return
            else:
                answer = await self._answer(line, peer)
            writer.write(json.dumps(plain(answer)).encode() + b"\n")
            await asyncio.wait_for(writer.drain(), self._idle_timeout)
            if too_long:
                return

    async def _answer(self, line: bytes, peer: Peer) -> dict[str, Any]:
        op = "?"
        try:
            request = _parse(line)
            op = request["op"]
            handler = self._handler(op)
            limit = self._handler_timeouts.get(op, self._handler_timeout)
            fields = await asyncio.wait_for(handler(request, peer), limit)
            answer: dict[str, Any] = {"ok": True, **fields}
        except ColdaisleError as error:
            answer = _refusal(str(error), error.remedy)
        except TimeoutError:
            answer = _refusal(f"{op} took too long and was given up", "look at the agent's log and `coldaisle status`")
        except Exception as error:  # noqa: BLE001  a bug in one command must not end the agent; it is answered and logged
            answer = _refusal(f"{op} failed: {type(error).__name__}: {error}", "report this as a bug")
        self._log(op, peer, "ok" if answer["ok"] else str(answer["error"]))
        return answer

    def _handler(self, op: str) -> Handler:
        if handler := self._handlers.get(op):
            return handler
        known = sorted(self._handlers)
        close = get_close_matches(op, known, n=1)
        remedy = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
        raise RequestError(f'"{op[:40]}" is no operation of this agent', remedy=remedy)


def _parse(line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict) or not isinstance(request.get("op"), str):
        raise RequestError("the request is not understood", remedy='send one JSON object a line, as {"op": "status"}')
    return request


def _refusal(error: str, remedy: str) -> dict[str, Any]:
    return {"ok": False, "error": error, "remedy": remedy}


def _peer(writer: asyncio.StreamWriter) -> Peer:
    raw = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return Peer(*_PEER.unpack(raw))
