"""The command line's end of the control socket: blocking, and quick to import."""

import json
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

from coldaisle.domain.errors import ColdaisleError

SOCKET_NAME = "control.sock"
SYSTEM_RUNTIME = Path("/run/coldaisle")

# Far above any answer; what is longer does not come from an agent.
_MOST_BYTES = 8 << 20


class NoAgentError(ColdaisleError):
    """Nothing answers on the control socket (exit code 5)."""

    remedy = "start it (`systemctl start coldaisle`, or `coldaisle run`), or give its socket with --socket"


class AccessError(ColdaisleError):
    """The control socket may not be opened (exit code 6)."""

    remedy = "use sudo, or join the group that owns the socket"


class RefusedError(ColdaisleError):
    """The agent answered that it cannot (exit code 1)."""


def find_socket(runtime: Path | None = None) -> Path:
    """Return the control socket's path: in `runtime` if that is given, else where an agent would have put it.

    A path that does not exist may be returned; connecting says so.
    """
    if runtime is not None:
        return runtime / SOCKET_NAME
    candidates = [SYSTEM_RUNTIME]
    if user_runtime := os.environ.get("XDG_RUNTIME_DIR"):
        candidates.append(Path(user_runtime) / "coldaisle")
    candidates.append(Path(tempfile.gettempdir()) / f"coldaisle-{os.getuid()}")
    for candidate in candidates:
        path = candidate / SOCKET_NAME
        try:
            if path.exists():
                return path
        except PermissionError:
            # A directory that hides its content is most likely the right one: connecting gives the clear answer.
            return path
    return candidates[0] / SOCKET_NAME


class ControlClient:
    """One request, one answer, over a connection of its own.

    Args:
        path: the socket.
        timeout: seconds to wait for the answer.
    """

    def __init__(self, path: Path, timeout: float = 30.0) -> None:
        self._path = path
        self._timeout = timeout

    def request(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send a request and return the answer's fields without `ok`.

        Raises:
            NoAgentError: nothing listens, or it does not answer in time.
            AccessError: this user may not connect.
            RefusedError: the agent refused; message and remedy are its own.
        """
        line = json.dumps({"op": op, **fields}).encode() + b"\n"
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(self._timeout)
                connection.connect(str(self._path))
                connection.sendall(line)
                answer = self._read_line(connection)
        except PermissionError:
            raise AccessError(f"{self._path}: permission denied") from None
        except TimeoutError:
            raise NoAgentError(
                f"{self._path}: no answer within {self._timeout:g} s", remedy="look at the agent's log"
            ) from None
        except OSError as error:
            raise NoAgentError(f"no agent answers on {self._path} ({error.strerror or error})") from None
        return self._understand(answer)

    def _read_line(self, connection: socket.socket) -> bytes:
        received = bytearray()
        while not received.endswith(b"\n"):
            part = connection.recv(65_536)
            if not part or len(received) > _MOST_BYTES:
                break
            received += part
        return bytes(received)

    def _understand(self, answer: bytes) -> dict[str, Any]:
        try:
            fields = json.loads(answer)
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            raise NoAgentError(f"{self._path}: the answer is not an agent's", remedy="look at the agent's log")
        if fields.pop("ok", False) is not True:
            raise RefusedError(str(fields.get("error", "refused")), remedy=str(fields.get("remedy", "")))
        return fields
