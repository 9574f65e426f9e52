"""The file of `--web.config.file`: TLS, users, headers and rate limit of the HTTP server.

The grammar is exporter-toolkit's, so that one file serves every exporter of a node. It is read strictly: what the
agent cannot honour is an error, never ignored, because each of these keys exists to keep somebody out.
"""

import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from coldaisle.config import document
from coldaisle.config.document import Document, Problem
from coldaisle.config.quantities import parse_duration, shown
from coldaisle.config.web_tls import ClientAuth, Material, TlsError, TlsSettings, build_context, ciphers, curve, version
from coldaisle.domain.errors import ConfigError

_MOST_BYTES = 1 << 20
_BCRYPT = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
# Cost 16 takes some four seconds of a core for each wrong password, and each step doubles it.
_HIGHEST_COST = 16
_HEADERS: dict[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-Content-Type-Options": ("nosniff",),
    "X-XSS-Protection": (),
    "Strict-Transport-Security": (),
}
_TLS_KEYS = (
    "cert",
    "key",
    "client_ca",
    "cert_file",
    "key_file",
    "client_ca_file",
    "client_auth_type",
    "client_allowed_sans",
    "min_version",
    "max_version",
    "cipher_suites",
    "prefer_server_cipher_suites",
    "curve_preferences",
)
_AUTH_TYPES = {"": "NoClientCert", "RequireClientCert": "RequireAnyClientCert"}

_Signature = tuple[int, int, int, int] | None


class RateLimit(NamedTuple):
    """A token bucket: one request each `interval` seconds, `burst` at once."""

    interval: float
    burst: int


class WebConfig(NamedTuple):
    """How the HTTP server is to answer. The defaults are plain HTTP, open to everyone who reaches the port."""

    context: ssl.SSLContext | None = None
    """TLS; None for plain HTTP."""
    allowed_sans: frozenset[str] = frozenset()
    """Subject alternative names of which a client certificate must have one; empty for any."""
    users: tuple[tuple[str, str], ...] = ()
    """Names and bcrypt hashes; empty for no authentication."""
    headers: tuple[tuple[str, str], ...] = ()
    rate_limit: RateLimit | None = None
    files: tuple[Path, ...] = ()
    """Every file that this was read from."""


def load(path: Path) -> WebConfig:
    """Read the file and everything that it names.

    Raises:
        ConfigError: something cannot be honoured; `problems` lists all that is wrong in the file.
    """
    config, problems = _attempt(path)
    if problems:
        raise ConfigError(problems)
    return config


def _attempt(path: Path) -> tuple[WebConfig, list[str]]:
    """Return the configuration and what is wrong with it; its `files` hold either way."""
    nothing = WebConfig(files=(path,))
    try:
        text = _read(path).decode("utf-8-sig")
    except TlsError as error:
        return nothing, [f"{path}: {error}"]
    except UnicodeDecodeError:
        return nothing, [f"{path}: is not UTF-8 text; save it as UTF-8"]
    reader = _Reader(document.parse(text), path)
    config = reader.read()
    # Keys may hold line breaks; a problem is one line.
    return config, [
        f"{path}:{problem.line}: {' '.join(problem.message.split())}" for problem in sorted(reader.problems)
    ]


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        why = error.strerror or str(error)
        raise TlsError(
            f"cannot be read ({path}: {why}): check the path and that the agent's user may read it"
        ) from None
    if len(content) > _MOST_BYTES:
        raise TlsError(f"is larger than 1 MiB ({path}): is it the right file?")
    return content


class _Reader:
    """Walks the document once and collects everything that is wrong."""

    def __init__(self, parsed: Document, path: Path) -> None:
        self._parsed = parsed
        self._path = path
        self.problems: list[Problem] = list(parsed.problems)
        self._files: list[Path] = [path]

    def read(self) -> WebConfig:
        value = {} if self._parsed.value is None else self._parsed.value
        if not isinstance(value, dict):
            self._problem((), f'must be "section: ..." lines, not {shown(value)}')
            return WebConfig(files=(self._path,))
        self._known(value, (), ("tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"))
        tls = self._section(value, "tls_server_config", _TLS_KEYS)
        http = self._section(value, "http_server_config", ("http2", "headers"))
        context, sans = self._tls(tls) if tls else (None, frozenset[str]())
        return WebConfig(
            context=context,
            allowed_sans=sans,
            users=self._users(value.get("basic_auth_users")),
            headers=self._http(http),
            rate_limit=self._rate_limit(self._section(value, "rate_limit", ("interval", "burst"))),
            files=tuple(self._files),
        )

    def _problem(self, path: document.Path, message: str) -> None:
        self.problems.append(Problem(self._parsed.line(path), message))

    def _known(self, mapping: dict[str, Any], path: document.Path, known: tuple[str, ...]) -> None:
        for key in mapping:
            if key not in known:
                self._problem((*path, key), f'"{key}" is unknown here: use one of {", ".join(known)}')

    def _section(self, value: dict[str, Any], name: str, known: tuple[str, ...]) -> dict[str, Any]:
        section = value.get(name)
        if section is None:
            return {}
        if not isinstance(section, dict):
            self._problem((name,), f'"{name}" must be "key: value" lines, not {shown(section)}')
            return {}
        self._known(section, (name,), known)
        # An empty value says the same as none, as in exporter-toolkit.
        return {key: value for key, value in section.items() if value not in (None, "")}

    # -- TLS ---------------------------------------------------------------------------------------------------------

    def _tls(self, tls: dict[str, Any]) -> tuple[ssl.SSLContext | None, frozenset[str]]:
        before = len(self.problems)
        sans = frozenset(self._strings(tls, "client_allowed_sans"))
        settings = TlsSettings(
            certificate=self._material(tls, "cert"),
            key=self._material(tls, "key"),
            client_ca=self._material(tls, "client_ca", wanted=False),
            client_auth=self._client_auth(tls, sans=bool(sans) or "client_allowed_sans" in tls),
            minimum=self._checked(tls, "min_version", version),
            maximum=self._checked(tls, "max_version", version),
            ciphers=self._checked_list(tls, "cipher_suites", ciphers) or ciphers([]),
            curve=self._checked_list(tls, "curve_preferences", curve),
            server_preference=self._boolean("tls_server_config", tls, "prefer_server_cipher_suites", default=True),
        )
        if len(self.problems) > before:
            return None, sans
        try:
            return build_context(settings), sans
        except TlsError as error:
            self._problem(("tls_server_config", error.key), str(error))
            return None, sans

    def _material(self, tls: dict[str, Any], name: str, *, wanted: bool = True) -> Material | None:
        inline, file = self._string(tls, name), self._string(tls, f"{name}_file")
        if inline and file:
            self._problem(("tls_server_config", name), f'"{name}" and "{name}_file" are both given: remove one')
        elif inline:
            return Material(name, inline.encode())
        elif file:
            path = self._path.parent / file
            self._files.append(path)
            try:
                return Material(f"{name}_file", _read(path))
            except TlsError as error:
                self._problem(("tls_server_config", f"{name}_file"), f'"{name}_file" {error}')
        elif wanted and name not in tls and f"{name}_file" not in tls:
            self._problem(("tls_server_config",), f'TLS needs "{name}" or "{name}_file": give one of them')
        return None

    def _client_auth(self, tls: dict[str, Any], *, sans: bool) -> ClientAuth:
        given = self._string(tls, "client_auth_type")
        name = _AUTH_TYPES.get(given, given)
        at: document.Path = ("tls_server_config", "client_auth_type")
        found = {auth.value: auth for auth in ClientAuth}.get(name)
        if found is None and name in ("RequestClientCert", "RequireAnyClientCert"):
            self._problem(
                at,
                f'"{given}" cannot be honoured: OpenSSL in Python verifies every client certificate it asks for; '
                'use "VerifyClientCertIfGiven" or "RequireAndVerifyClientCert" with "client_ca_file"',
            )
        elif found is None:
            self._problem(at, f'"{given}" is no client_auth_type: use NoClientCert or RequireAndVerifyClientCert')
        elif found is ClientAuth.NONE and (tls.get("client_ca") or tls.get("client_ca_file")):
            self._problem(at, 'a client CA is given without "client_auth_type": set it to RequireAndVerifyClientCert')
        elif sans and found is not ClientAuth.REQUIRE:
            self._problem(
                ("tls_server_config", "client_allowed_sans"),
                '"client_allowed_sans" needs client_auth_type: RequireAndVerifyClientCert; without it a client may '
                "come with no certificate at all",
            )
        return found or ClientAuth.NONE

    def _checked(self, tls: dict[str, Any], key: str, parse: Callable[[str], Any]) -> Any:
        text = self._string(tls, key)
        return self._parsed_by(parse, text, ("tls_server_config", key)) if text else None

    def _checked_list(self, tls: dict[str, Any], key: str, parse: Callable[[list[str]], Any]) -> Any:
        found = self._strings(tls, key)
        return self._parsed_by(parse, found, ("tls_server_config", key)) if found else None

    def _parsed_by(self, parse: Callable[[Any], Any], value: Any, path: document.Path) -> Any:
        try:
            return parse(value)
        except ValueError as error:
            self._problem(path, f'"{path[-1]}" {error}')
            return None

    # -- the rest ----------------------------------------------------------------------------------------------------

    def _http(self, http: dict[str, Any]) -> tuple[tuple[str, str], ...]:
        if self._boolean("http_server_config", http, "http2", default=False):
            self._problem(
                ("http_server_config", "http2"),
                '"http2: true" cannot be honoured, the agent speaks HTTP/1.1: remove it',
            )
        headers = http.get("headers", {})
        at: document.Path = ("http_server_config", "headers")
        if not isinstance(headers, dict):
            self._problem(at, f'"headers" must be "Name: value" lines, not {shown(headers)}')
            return ()
        self._known(headers, at, tuple(_HEADERS))
        return tuple((name, value) for name, value in headers.items() if self._header(name, value))

    def _header(self, name: str, value: Any) -> bool:
        at: document.Path = ("http_server_config", "headers", name)
        if value in (None, "") or name not in _HEADERS:
            return False
        allowed = _HEADERS[name]
        if not isinstance(value, str) or not value.isprintable() or not value.isascii():
            self._problem(at, f'"{name}" must be one line of ASCII text, not {shown(value)}: put it in quotes')
        elif allowed and value.lower() not in allowed:
            self._problem(at, f'"{name}" cannot be "{value}": use {" or ".join(allowed)}')
        return True

    def _users(self, users: Any) -> tuple[tuple[str, str], ...]:
        if users is None:
            return ()
        if not isinstance(users, dict):
            self._problem(("basic_auth_users",), f'"basic_auth_users" must be "name: hash" lines, not {shown(users)}')
            return ()
        for name, hashed in users.items():
            at: document.Path = ("basic_auth_users", name)
            found = _BCRYPT.fullmatch(hashed) if isinstance(hashed, str) else None
            if not name or ":" in name:
                self._problem(at, f'"{name}" cannot be a user name: it must not be empty or hold a colon')
            # The value is never said back: it may be the password itself.
            if found is None or not int(found[1]) >= 4:
                self._problem(at, f'the password of "{name}" is no bcrypt hash: make one with `htpasswd -nBC 10 ""`')
            elif int(found[1]) > _HIGHEST_COST:
                self._problem(
                    at,
                    f'the bcrypt cost of "{name}" is {found[1]}, a check would take seconds: use 10 to {_HIGHEST_COST}',
                )
        return tuple(users.items())

    def _rate_limit(self, limit: dict[str, Any]) -> RateLimit | None:
        if not limit:
            return None
        interval, burst = limit.get("interval", 0), limit.get("burst", 0)
        if interval == 0 and interval is not False:
            return None
        seconds = self._parsed_by(parse_duration, interval, ("rate_limit", "interval"))
        if seconds == 0:
            return None
        if not isinstance(burst, int) or isinstance(burst, bool) or burst < 1:
            self._problem(("rate_limit", "burst"), '"burst" must be a whole number from 1: with 0 nobody could ask')
            return None
        return RateLimit(seconds or 1.0, burst)

    def _string(self, section: dict[str, Any], key: str) -> str:
        value = section.get(key, "")
        if not isinstance(value, str):
            self._problem(("tls_server_config", key), f'"{key}" must be text, not {shown(value)}: put it in quotes')
            return ""
        return value

    def _strings(self, section: dict[str, Any], key: str) -> list[str]:
        value = section.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self._problem(("tls_server_config", key), f'"{key}" must be a list of texts: write ["first", "second"]')
            return []
        return value

    def _boolean(self, section_name: str, section: dict[str, Any], key: str, *, default: bool) -> bool:
        value = section.get(key, default)
        if not isinstance(value, bool):
            self._problem((section_name, key), f'"{key}" must be true or false, not {shown(value)}')
            return default
        return value


class WebFile:
    """The file while the agent runs: says when it, or a certificate that it names, has changed.

    Args:
        path: the file; None for no file, which never changes.

    Attributes:
        config: the last good configuration.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.config = WebConfig(files=() if path is None else (path,))
        # Those of the last attempt, good or bad: a file that was missing may come.
        self._files = self.config.files
        self._taken: tuple[_Signature, ...] = ()
        self._settling: tuple[_Signature, ...] = ()

    def load(self) -> WebConfig:
        """Read everything anew and keep it if it is good; a bad file is not tried again before it changes.

        Raises:
            ConfigError: the file cannot be honoured; `config` stays what it was.
        """
        if self._path is None:
            return self.config
        # Signatures first: what changes while the files are read is a change.
        before = self._signatures()
        config, problems = _attempt(self._path)
        same_files = config.files == self._files
        self._files = config.files
        self._taken = self._settling = before if same_files else self._signatures()
        if problems:
            raise ConfigError(problems)
        self.config = config
        return config

    def changed(self) -> bool:
        """Whether `load` is due: something changed since, and has been at rest for one call. Call once a second.

        Certificate and key are replaced one after the other; the pair is read when both are there. Costs one `stat`
        a file.
        """
        found = self._signatures()
        settled, self._settling = found == self._settling, found
        return settled and found != self._taken

    def _signatures(self) -> tuple[_Signature, ...]:
        return tuple(map(_signature, self._files))


def _signature(path: Path) -> _Signature:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size, found.st_dev
