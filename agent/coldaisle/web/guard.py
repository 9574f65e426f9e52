"""Stands before the application: rate limit, basic auth and configured headers, as the web configuration says.

One guard lives as long as one configuration; taking up another means another guard, so a request never meets half of
each.
"""

import asyncio
import base64
import binascii
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import bcrypt
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coldaisle.config.web_file import RateLimit, WebConfig
from coldaisle.domain.clock import Clock

_LONGEST_PASSWORD = 72
"""Bytes that bcrypt reads; it would take no notice of more, so more is no password."""
_MOST_VERDICTS = 256
_MOST_WAITING = 32
"""Password checks in the queue, of 50 ms each; beyond that a guesser is refused before it costs anything."""

CheckPassword = Callable[[bytes, bytes], bool]


class BusyError(Exception):
    """Too many passwords are being checked."""


class Authenticator:
    """Checks names and passwords against bcrypt hashes.

    One check at a time, in a thread: a flood of guesses costs at most one core and never the event loop. Verdicts are
    kept under a hash with a random key, so that a scraper pays once and the process holds no password.

    Args:
        users: bcrypt hashes by name.
        check: bcrypt's own check of (password, hash).
    """

    def __init__(self, users: dict[str, str], check: CheckPassword = bcrypt.checkpw) -> None:
        self._hashes = {name: hashed.encode() for name, hashed in users.items()}
        # For unknown names: a hash of nobody's password at a known one's cost, so that time does not tell names.
        cost = max((int(hashed[4:6]) for hashed in users.values()), default=10)
        self._nobody = f"$2b${cost:02d}$".encode() + b"." * 53
        self._check = check
        self._key = secrets.token_bytes(32)
        self._verdicts: OrderedDict[bytes, bool] = OrderedDict()
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bcrypt")

    def close(self) -> None:
        """End the thread; checks that have not begun are not made."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def allows(self, authorization: str) -> bool:
        """Whether the value of an Authorization header names a user with the right password.

        Raises:
            BusyError: too many checks are waiting.
        """
        credentials = _credentials(authorization)
        if credentials is None:
            return False
        name, password = credentials
        hashed = self._hashes.get(name)
        key = hashlib.blake2b(f"{len(name)}:{name}".encode() + password, key=self._key, digest_size=32).digest()
        verdict = self._verdicts.get(key)
        return verdict if verdict is not None else await self._verify(key, password, hashed)

    async def _verify(self, key: bytes, password: bytes, hashed: bytes | None) -> bool:
        if self._waiting >= _MOST_WAITING:
            raise BusyError
        self._waiting += 1
        try:
            async with self._lock:
                if key in self._verdicts:
                    return self._verdicts[key]
                right = await asyncio.get_running_loop().run_in_executor(
                    self._thread, self._matches, password, hashed or self._nobody
                )
                self._verdicts[key] = verdict = right and hashed is not None
                while len(self._verdicts) > _MOST_VERDICTS:
                    self._forget_one()
                return verdict
        finally:
            self._waiting -= 1

    def _forget_one(self) -> None:
        # Wrong ones first: guesses must not push out the scraper's verdict.
        wrong = next((key for key, verdict in self._verdicts.items() if not verdict), None)
        self._verdicts.pop(wrong if wrong is not None else next(iter(self._verdicts)))

    def _matches(self, password: bytes, hashed: bytes) -> bool:
        try:
            return self._check(password, hashed)
        except ValueError:  # bcrypt does not like the hash or the password
            return False


def _credentials(authorization: str) -> tuple[str, bytes] | None:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        decoded = name.decode()
    except (binascii.Error, ValueError):
        return None
    if not colon or len(password) > _LONGEST_PASSWORD:
        return None
    return decoded, password


class TokenBucket:
    """Allows `burst` requests at once and one more each `interval` seconds, for all clients together."""

    def __init__(self, limit: RateLimit, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._tokens = float(limit.burst)
        self._filled = clock.monotonic()

    def allow(self) -> bool:
        """Take a token if there is one."""
        now = self._clock.monotonic()
        self._tokens = min(float(self._limit.burst), self._tokens + (now - self._filled) / self._limit.interval)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Guard:
    """ASGI middleware for one `WebConfig`."""

    def __init__(self, app: ASGIApp, config: WebConfig, clock: Clock) -> None:
        self._app = app
        self._headers = [(name.lower().encode(), value.encode()) for name, value in config.headers]
        self._names = {name for name, _ in self._headers}
        self._bucket = TokenBucket(config.rate_limit, clock) if config.rate_limit else None
        self._authenticator = Authenticator(dict(config.users)) if config.users else None

    def close(self) -> None:
        """Let go of the thread that checks passwords."""
        if self._authenticator is not None:
            self._authenticator.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            return
        if self._headers:
            send = self._with_headers(send)
        if self._bucket is not None and not self._bucket.allow():
            await _refuse(send, 429, b"Too many requests: the rate_limit of the web configuration is reached.\n")
        elif self._authenticator is None:
            await self._app(scope, receive, send)
        else:
            await self._authenticated(self._authenticator, scope, receive, send)

    async def _authenticated(self, authenticator: Authenticator, scope: Scope, receive: Receive, send: Send) -> None:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        try:
            allowed = await authenticator.allows(given.decode("latin-1"))
        except BusyError:
            await _refuse(send, 429, b"Too many password checks are waiting: try again later.\n")
            return
        if allowed:
            await self._app(scope, receive, send)
        else:
            await _refuse(send, 401, b"Unauthorized\n", (b"www-authenticate", b"Basic"))

    def _with_headers(self, send: Send) -> Send:
        async def sender(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [header for header in message.get("headers", ()) if header[0] not in self._names]
                message["headers"] = kept + self._headers
            await send(message)

        return sender


async def _refuse(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", str(len(body)).encode())
    kind = (b"content-type", b"text/plain; charset=utf-8")
    await send({"type": "http.response.start", "status": status, "headers": [length, kind, *headers]})
    await send({"type": "http.response.body", "body": body})
