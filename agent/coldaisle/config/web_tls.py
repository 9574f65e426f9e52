"""What exporter-toolkit's TLS words mean to OpenSSL in Python, and which of them it cannot do."""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import NamedTuple

# Go's names. Those of TLS 1.3 are always on and not configurable, there as here.
_TLS13_SUITES = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
}
_CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1"}
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}


class ClientAuth(StrEnum):
    """The policies towards client certificates that OpenSSL in Python has."""

    NONE = "NoClientCert"
    IF_GIVEN = "VerifyClientCertIfGiven"
    REQUIRE = "RequireAndVerifyClientCert"


class TlsError(Exception):
    """A file or value that cannot be used. `key` is the key to blame, if it is known."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class Material(NamedTuple):
    """PEM text and the key of the file that gave it."""

    key: str
    pem: bytes


class Suites(NamedTuple):
    """Cipher suites: OpenSSL's names up to TLS 1.2, and whether the list leaves anything but TLS 1.3."""

    names: tuple[str, ...] = ()
    only_tls13: bool = False


class TlsSettings(NamedTuple):
    """What `build_context` needs; None is the default of each."""

    certificate: Material | None
    key: Material | None
    client_ca: Material | None
    client_auth: ClientAuth
    minimum: ssl.TLSVersion | None
    maximum: ssl.TLSVersion | None
    ciphers: Suites
    curve: str | None
    server_preference: bool


def version(name: str) -> ssl.TLSVersion:
    """Return the TLS version of that name, or raise ValueError."""
    if name in ("TLS10", "TLS11"):
        raise ValueError(f'"{name}" cannot be honoured, OpenSSL refuses it for its broken hashes: use TLS12 or TLS13')
    if name not in _VERSIONS:
        raise ValueError(f'does not know the TLS version "{name}": use TLS12 or TLS13')
    return _VERSIONS[name]


def ciphers(names: list[str]) -> Suites:
    """Return the cipher suites of Go's names, or raise ValueError."""
    for name in names:
        if name not in _SUITES and name not in _TLS13_SUITES:
            raise ValueError(f'has the unknown cipher "{name}": use {", ".join(_SUITES)}')
    chosen = tuple(_SUITES[name] for name in names if name in _SUITES)
    return Suites(chosen, only_tls13=bool(names) and not chosen)


def curve(names: list[str]) -> str:
    """Return OpenSSL's name of the one curve given, or raise ValueError."""
    for name in names:
        if name not in _CURVES and name != "X25519":
            raise ValueError(f'has the unknown curve "{name}": use one of {", ".join(_CURVES)}')
    if len(names) > 1:
        raise ValueError("cannot be honoured with more than one curve, Python sets one: leave one, or the list out")
    if names[0] == "X25519":
        raise ValueError("cannot be honoured with X25519 alone, Python cannot set it: leave the list out to have it")
    return _CURVES[names[0]]


def build_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return a server's TLS context.

    Raises:
        TlsError: certificate, key or CA cannot be used, or the versions leave nothing.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = settings.minimum or ssl.TLSVersion.TLSv1_2
    context.maximum_version = settings.maximum or ssl.TLSVersion.TLSv1_3
    if settings.ciphers.only_tls13:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if context.minimum_version > context.maximum_version:
        raise TlsError('"max_version" leaves no TLS version: raise it, or lower "min_version"', "max_version")
    if settings.ciphers.names:
        context.set_ciphers(":".join(settings.ciphers.names))
    if settings.curve:
        context.set_ecdh_curve(settings.curve)
    if not settings.server_preference:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    assert settings.certificate is not None
    assert settings.key is not None
    _load_pair(context, settings.certificate, settings.key)
    _load_client_ca(context, settings)
    return context


def _load_client_ca(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.client_auth is ClientAuth.NONE:
        return
    optional = settings.client_auth is ClientAuth.IF_GIVEN
    context.verify_mode = ssl.CERT_OPTIONAL if optional else ssl.CERT_REQUIRED
    if settings.client_ca is None:
        raise TlsError(
            f'"{settings.client_auth.value}" needs "client_ca_file": without it every client that any public CA knows '
            "would be let in",
            "client_auth_type",
        )
    try:
        context.load_verify_locations(cadata=settings.client_ca.pem.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError, ValueError):
        key = settings.client_ca.key
        raise TlsError(f'"{key}" holds no certificate in PEM form: give the CA of the clients', key) from None


def _load_pair(context: ssl.SSLContext, certificate: Material, key: Material) -> None:
    # Without a password function OpenSSL would ask on the terminal for the one of an encrypted key.
    encrypted = False

    def password() -> str:
        nonlocal encrypted
        encrypted = True
        return ""

    for material, begin in ((certificate, b"CERTIFICATE-----"), (key, b"PRIVATE KEY-----")):
        if begin not in material.pem:
            what = "certificate" if material is certificate else "private key"
            raise TlsError(f'"{material.key}" holds no {what} in PEM form', material.key)
    with _as_file(certificate.pem) as certificate_path, _as_file(key.pem) as key_path:
        try:
            context.load_cert_chain(certificate_path, key_path, password)
        except ssl.SSLError as error:
            if encrypted:
                raise TlsError(f'"{key.key}" is encrypted: give it without a passphrase', key.key) from None
            if error.reason == "KEY_VALUES_MISMATCH":
                raise TlsError(f'"{key.key}" is not the key of "{certificate.key}": give the pair', key.key) from None
            why = (error.reason or "no PEM").lower().replace("_", " ")
            raise TlsError(f'"{certificate.key}" and "{key.key}" cannot be used: {why}', certificate.key) from None


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Lend a path to bytes: OpenSSL's loader takes only files, and a key given inline must not touch a disk."""
    descriptor = os.memfd_create("coldaisle-tls", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
