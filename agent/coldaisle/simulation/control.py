"""The client of a simulated machine's control socket: JSON lines over a Unix stream, for setters, faults and tests."""

import json
import select
import socket
from typing import Any, Self

from coldaisle.domain.errors import ColdaisleError
from coldaisle.simulation.machine import SOCKET


class ControlError(ColdaisleError):
    """The machine refused. `code` is the NVML return code of a refused setter, 0 for a wrong request."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Client:
    """Talks to the machine in `directory`; connects at the first request. Not for several threads at once.

    Args:
        directory: the machine's.
        timeout: seconds to wait for an answer.
    """

    def __init__(self, directory: str, timeout: float = 10.0) -> None:
        self._path = f"{directory}/{SOCKET}"
        self._timeout = timeout
        self._socket: socket.socket | None = None
        self._rest = b""
        self._events: list[dict[str, Any]] = []

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Send one request and return its answer. Raises ControlError if it is refused or nobody answers."""
        line = json.dumps({"op": op, **{name: value for name, value in arguments.items() if value is not None}})
        try:
            connection = self._connection()
            connection.sendall(line.encode() + b"\n")
            while "event" in (answer := self._line(self._timeout)):
                self._events.append(answer)
        except OSError as error:
            self.close()
            raise ControlError(f"no simulated machine answers at {self._path}: {error}") from error
        if not answer.get("ok"):
            raise ControlError(str(answer.get("error", "refused")), int(answer.get("code", 0)))
        return answer

    def fault(self, kind: str, gpu: int | None = None, seconds: float | None = None, **arguments: Any) -> None:
        """Inject a fault of `kind` (docs/simulation.md lists them), for `seconds` or until cleared."""
        self.request("fault", kind=kind, gpu=gpu, seconds=seconds, **arguments)

    def clear(self, gpu: int | None = None, kind: str | None = None) -> None:
        """End the faults of one GPU, of one kind, or all."""
        self.request("clear", gpu=gpu, kind=kind)

    def load(self, name: str | None, gpus: int | str | None = None) -> None:
        """Put a load on GPUs (`3`, `"0-3"`, None: all); None gives them back to the schedule."""
        self.request("load", load=name or "schedule", gpus=gpus)

    def advance(self, seconds: float) -> None:
        """Let that much simulated time pass at once."""
        self.request("advance", seconds=seconds)

    def pause(self, *, paused: bool = True) -> None:
        """Stop or resume the flow of simulated time; `advance` still works."""
        self.request("pause", paused=paused)

    def state(self) -> dict[str, Any]:
        """Return what the machine knows about itself: time, faults, each GPU's load and physics."""
        return self.request("state")

    def subscribe(self, gpu: int) -> None:
        """Ask for the Xids of one GPU; `event` then waits for them on this connection."""
        self.request("subscribe", gpu=gpu)

    def event(self, timeout: float) -> dict[str, Any] | None:
        """Return the next event within `timeout` seconds, else None. Raises ControlError if the machine is gone."""
        if self._events:
            return self._events.pop(0)
        try:
            return self._line(timeout)
        except TimeoutError:
            return None
        except OSError as error:
            self.close()
            raise ControlError(f"the simulated machine is gone: {error}") from error

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _connection(self) -> socket.socket:
        if self._socket is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(self._timeout)
            try:
                connection.connect(self._path)
            except OSError:
                connection.close()
                raise
            self._socket = connection
        return self._socket

    def _line(self, timeout: float) -> dict[str, Any]:
        connection = self._connection()
        while b"\n" not in self._rest:
            if not select.select([connection], [], [], timeout)[0]:
                raise TimeoutError("no answer in time")
            data = connection.recv(65_536)
            if not data:
                raise ConnectionError("the connection was closed")
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer
