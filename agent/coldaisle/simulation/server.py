"""The simulator's loop: simulated time follows real time in 0.1 s steps, requests are answered in between."""

import json
import math
import selectors
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coldaisle.simulation.gpu_sets import parse_gpus
from coldaisle.simulation.machine import SOCKET
from coldaisle.simulation.node import STEP, Node
from coldaisle.simulation.physics import LEAST_INLET, MOST_INLET

MOST_CATCH_UP = 20
"""Steps made up for at once after the machine was held up; what is beyond did not happen."""
MOST_ADVANCE = 6 * 3600.0
"""Seconds that one `advance` may ask for: more would keep the asker waiting for minutes."""
LONGEST_LINE = 65_536
SEND_SECONDS = 1.0


class _Peer:
    """One connection: its unfinished line and the GPUs whose Xids it wants."""

    __slots__ = ("connection", "gpus", "rest")

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.rest = b""
        self.gpus: set[int] = set()


class _Refused(Exception):
    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Server:
    """Serves the control socket and lets time pass.

    Args:
        node: the machine.
        directory: where the socket lies.
        monotonic: seconds of real time.
    """

    def __init__(self, node: Node, directory: str, monotonic: Callable[[], float]) -> None:
        self._node = node
        self._monotonic = monotonic
        self._path = Path(directory, SOCKET)
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self._path))
        self._path.chmod(0o660)
        self._listener.listen(64)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._peers: list[_Peer] = []
        self._paused = False
        self.running = True
        node.on_xid = self._tell

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        """Call `ready` when `fd` can be read."""
        self._selector.register(fd, selectors.EVENT_READ, ready)

    def run(self) -> None:
        """Serve until `running` is False (looked at ten times a second)."""
        due = self._monotonic() + STEP
        while self.running:
            for key, _ in self._selector.select(max(0.0, due - self._monotonic())):
                key.data()
            behind = math.floor((self._monotonic() - due) / STEP) + 1
            if behind > 0:
                due += behind * STEP
                if not self._paused:
                    self._node.advance(min(behind, MOST_CATCH_UP) * STEP)

    def close(self) -> None:
        """Close every connection and remove the socket."""
        for peer in tuple(self._peers):
            self._drop(peer)
        self._selector.close()
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.settimeout(SEND_SECONDS)
        peer = _Peer(connection)
        self._peers.append(peer)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(peer))

    def _drop(self, peer: _Peer) -> None:
        if peer in self._peers:
            self._peers.remove(peer)
            self._selector.unregister(peer.connection)
            peer.connection.close()

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.connection.recv(LONGEST_LINE)
        except OSError:
            data = b""
        if not data or len(peer.rest) > LONGEST_LINE:
            self._drop(peer)
            return
        *lines, peer.rest = (peer.rest + data).split(b"\n")
        for line in lines:
            self._send(peer, self._answer(peer, line))

    def _send(self, peer: _Peer, message: dict[str, Any]) -> None:
        try:
            peer.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._drop(peer)

    def _tell(self, gpu: int, xid: int) -> None:
        for peer in tuple(self._peers):
            if gpu in peer.gpus:
                self._send(peer, {"event": "xid", "gpu": gpu, "xid": xid})

    def _answer(self, peer: _Peer, line: bytes) -> dict[str, Any]:
        try:
            result = self._serve(peer, json.loads(line))
        except _Refused as refused:
            return {"ok": False, "error": str(refused), "code": refused.code}
        except (KeyError, TypeError, ValueError) as error:
            what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            return {"ok": False, "error": what}
        self._node.publish()
        return {"ok": True, **result}

    def _serve(self, peer: _Peer, request: Any) -> dict[str, Any]:
        if not isinstance(request, dict):
            raise _Refused("a request is one JSON object")
        operation = request.pop("op", None)
        handler = getattr(self, f"_do_{operation}", None) if isinstance(operation, str) else None
        if handler is None:
            known = ", ".join(sorted(name[4:] for name in dir(self) if name.startswith("_do_")))
            raise _Refused(f"no operation is called {operation!r}: write one of {known}")
        answer: dict[str, Any] | None = handler(peer, request)
        return answer or {}

    def _gpu(self, request: dict[str, Any]) -> int:
        gpu = request["gpu"]
        if not isinstance(gpu, int) or not 0 <= gpu < len(self._node.boards):
            raise _Refused(f"there is no GPU {gpu}: write 0 to {len(self._node.boards) - 1}")
        return gpu

    def _do_fault(self, _: _Peer, request: dict[str, Any]) -> None:
        kind, gpu, seconds = request.pop("kind"), request.pop("gpu", None), request.pop("seconds", None)
        lasts = None if seconds is None else float(seconds)
        if lasts is not None and not 0 <= lasts < math.inf:
            raise _Refused(f"a fault cannot last {seconds} s: write 0 or more, or nothing for until cleared")
        self._node.fault(kind, gpu, lasts, request)

    def _do_clear(self, _: _Peer, request: dict[str, Any]) -> dict[str, Any]:
        return {"cleared": self._node.clear(request.get("gpu"), request.get("kind"))}

    def _do_load(self, _: _Peer, request: dict[str, Any]) -> None:
        self._node.pin(request["load"], parse_gpus(request.get("gpus", "all"), len(self._node.boards)))

    def _do_inlet(self, _: _Peer, request: dict[str, Any]) -> None:
        celsius = float(request["celsius"])
        if not LEAST_INLET <= celsius <= MOST_INLET:
            raise _Refused(f"the inlet cannot be {celsius} degrees: write {LEAST_INLET} to {MOST_INLET}")
        self._node.base_inlet = celsius

    def _do_advance(self, _: _Peer, request: dict[str, Any]) -> dict[str, Any]:
        seconds = float(request["seconds"])
        if not 0 <= seconds <= MOST_ADVANCE:
            raise _Refused(f"cannot advance by {seconds} s: write 0 to {MOST_ADVANCE:.0f}")
        if seconds:
            self._node.advance(seconds)
        return {"now": self._node.now}

    def _do_pause(self, _: _Peer, request: dict[str, Any]) -> None:
        self._paused = bool(request.get("paused", True))

    def _do_state(self, _: _Peer, __: dict[str, Any]) -> dict[str, Any]:
        return self._node.state()

    def _do_subscribe(self, peer: _Peer, request: dict[str, Any]) -> None:
        peer.gpus.add(self._gpu(request))

    def _do_set_power_limit(self, _: _Peer, request: dict[str, Any]) -> None:
        code = self._node.boards[self._gpu(request)].set_limit(int(request["milliwatts"]) / 1000)
        if code:
            raise _Refused(f"NVML {code}", code)

    def _do_lock_clocks(self, _: _Peer, request: dict[str, Any]) -> None:
        code = self._node.boards[self._gpu(request)].lock_clocks(int(request["low"]), int(request["high"]))
        if code:
            raise _Refused(f"NVML {code}", code)
