"""The web configuration file: what is taken, and each kind of wrong file with its line and remedy."""

import os
import ssl
import textwrap

import pytest
import trustme

from coldaisle.config.web_file import RateLimit, WebConfig, WebFile, load
from coldaisle.domain.errors import ConfigError

HASH = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
PAIR = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"


@pytest.fixture(scope="session")
def authority():
    return trustme.CA()


def write_pair(folder, issued, name="server"):
    (folder / f"{name}.crt").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    (folder / f"{name}.key").write_bytes(issued.private_key_pem.bytes())


@pytest.fixture
def folder(tmp_path, authority):
    write_pair(tmp_path, authority.issue_cert("localhost", "127.0.0.1"))
    (tmp_path / "other.key").write_bytes(authority.issue_cert("other").private_key_pem.bytes())
    (tmp_path / "ca.crt").write_bytes(authority.cert_pem.bytes())
    (tmp_path / "junk.pem").write_text("junk\n")
    (tmp_path / "broken.crt").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    (tmp_path / "encrypted.key").write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    return tmp_path


def read(folder, text):
    path = folder / "web.yml"
    path.write_text(textwrap.dedent(text))
    return load(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "tls_server_config:\n",
        "tls_server_config: {}\nbasic_auth_users:\n",
        "rate_limit:\n  interval: 0\n",
    ],
)
def test_an_empty_file_is_plain_http(folder, text):
    """A file that says nothing, or sections that say nothing, change nothing."""
    assert read(folder, text) == WebConfig(files=(folder / "web.yml",))


def test_everything_at_once(folder):
    """All keys that can be honoured are, and paths are relative to the file."""
    config = read(
        folder,
        f"""\
        tls_server_config:
          cert_file: server.crt
          key_file: {folder}/server.key
          client_ca_file: ca.crt
          client_auth_type: RequireAndVerifyClientCert
          client_allowed_sans: [prometheus.example]
          min_version: TLS12
          max_version: TLS12
          cipher_suites: [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256]
          prefer_server_cipher_suites: false
          curve_preferences: [CurveP384]
        http_server_config:
          http2: false
          headers:
            X-Frame-Options: DENY
            Strict-Transport-Security: max-age=31536000
            X-XSS-Protection: ""
        basic_auth_users:
          alice: {HASH}
        rate_limit:
          interval: 250ms
          burst: 20
        """,
    )
    context = config.context
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    assert {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"} == {
        "ECDHE-RSA-AES256-GCM-SHA384"
    }
    assert not context.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    assert config.allowed_sans == {"prometheus.example"}
    assert config.headers == (("X-Frame-Options", "DENY"), ("Strict-Transport-Security", "max-age=31536000"))
    assert config.users == (("alice", HASH),)
    assert config.rate_limit == RateLimit(0.25, 20)
    assert {path.name for path in config.files} == {"web.yml", "server.crt", "server.key", "ca.crt"}


def test_inline_certificate_and_key(folder):
    """Certificate and key may stand in the file itself."""

    def block(name):
        return textwrap.indent((folder / name).read_text(), "    ")

    config = read(folder, f"tls_server_config:\n  cert: |\n{block('server.crt')}  key: |\n{block('server.key')}")
    assert isinstance(config.context, ssl.SSLContext)


def test_defaults_of_tls(folder):
    """Without versions named it is TLS 1.2 and 1.3, without client certificates, and the server's preference counts."""
    context = read(folder, PAIR).context
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert context.verify_mode is ssl.CERT_NONE
    assert context.options & ssl.OP_CIPHER_SERVER_PREFERENCE


def test_only_tls13_suites_mean_tls13(folder):
    """A list without any suite of TLS 1.2 shuts TLS 1.2 out, as it does in Go."""
    context = read(folder, PAIR + "  cipher_suites: [TLS_AES_128_GCM_SHA256]\n").context
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3


BAD = {
    "unknown section": ("tls_config: {}\n", 1, '"tls_config" is unknown here'),
    "unknown key": (PAIR + "  cert_fil: a\n", 4, '"cert_fil" is unknown here'),
    "unknown http key": ("http_server_config:\n  http3: true\n", 2, '"http3" is unknown'),
    "not yaml": ("tls_server_config: [\n", 2, "not valid YAML"),
    "junk": ("hWkNKCp3fvIx3jKnsaBI\n", 1, "must be"),
    "twice": (PAIR + "  cert_file: b\n", 4, "already set in line 2"),
    "section of wrong type": ("tls_server_config: yes\n", 1, "must be"),
    "no certificate": ("tls_server_config:\n  key_file: server.key\n", 1, 'needs "cert" or "cert_file"'),
    "no key": ("tls_server_config:\n  cert_file: server.crt\n", 1, 'needs "key" or "key_file"'),
    "empty paths": ('tls_server_config:\n  cert_file: ""\n  key_file: ""\n  min_version: TLS12\n', 1, 'needs "cert" or "cert_file"'),
    "no certificate file": ("tls_server_config:\n  cert_file: none.crt\n  key_file: server.key\n", 2, "No such file"),
    "no key file": ("tls_server_config:\n  cert_file: server.crt\n  key_file: none.key\n", 3, "No such file"),
    "directory": ("tls_server_config:\n  cert_file: .\n  key_file: server.key\n", 2, "Is a directory"),
    "both forms": (PAIR + "  cert: abc\n", 4, "are both given"),
    "no pem": ("tls_server_config:\n  cert_file: junk.pem\n  key_file: server.key\n", 2, "holds no certificate in PEM form"),
    "key is no pem": ("tls_server_config:\n  cert_file: server.crt\n  key_file: junk.pem\n", 3, "holds no private key"),
    "broken certificate": ("tls_server_config:\n  cert_file: broken.crt\n  key_file: server.key\n", 2, "cannot be used"),
    "foreign key": ("tls_server_config:\n  cert_file: server.crt\n  key_file: other.key\n", 3, "is not the key of"),
    "certificate of wrong type": ("tls_server_config:\n  cert_file: 5\n  key_file: server.key\n", 2, "must be text"),
    "ca without policy": (PAIR + "  client_ca_file: ca.crt\n", 1, 'without "client_auth_type"'),
    "policy without ca": (PAIR + "  client_auth_type: RequireAndVerifyClientCert\n", 4, 'needs "client_ca_file"'),
    "no ca file": (PAIR + "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: none\n", 5, "No such file"),
    "ca is no pem": (PAIR + "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: junk.pem\n", 5, "no certificate in PEM"),
    "policy unknown": (PAIR + "  client_auth_type: Always\n", 4, "is no client_auth_type"),
    "policy request": (PAIR + "  client_auth_type: RequestClientCert\n", 4, "cannot be honoured"),
    "policy any": (PAIR + "  client_auth_type: RequireAnyClientCert\n", 4, "cannot be honoured"),
    "policy any, old name": (PAIR + "  client_auth_type: RequireClientCert\n", 4, "cannot be honoured"),
    "sans without policy": (PAIR + "  client_allowed_sans: [a]\n", 4, "needs client_auth_type"),
    "sans no list": (PAIR + "  client_allowed_sans: a\n", 4, "must be a list"),
    "version unknown": (PAIR + "  min_version: TLS111\n", 4, "does not know the TLS version"),
    "version too old": (PAIR + "  min_version: TLS10\n", 4, "cannot be honoured"),
    "versions crossed": (PAIR + "  min_version: TLS13\n  max_version: TLS12\n", 5, "leaves no TLS version"),
    "cipher unknown": (PAIR + "  cipher_suites: [TLS_RSA_WITH_INVENTED]\n", 4, "unknown cipher"),
    "curve unknown": (PAIR + "  curve_preferences: [CurveP257]\n", 4, "unknown curve"),
    "curves": (PAIR + "  curve_preferences: [CurveP256, CurveP384]\n", 4, "more than one curve"),
    "curve x25519": (PAIR + "  curve_preferences: [X25519]\n", 4, "cannot be honoured"),
    "preference": (PAIR + "  prefer_server_cipher_suites: maybe\n", 4, "must be true or false"),
    "http2": ("http_server_config:\n  http2: true\n", 2, "cannot be honoured"),
    "header unknown": ("http_server_config:\n  headers:\n    Server: x\n", 3, '"Server" is unknown'),
    "header value": ("http_server_config:\n  headers:\n    X-Frame-Options: nosniff\n", 3, "use deny or sameorigin"),
    "header injection": ('http_server_config:\n  headers:\n    X-XSS-Protection: "a\\nb"\n', 3, "one line"),
    "headers no mapping": ("http_server_config:\n  headers: 5\n", 2, "must be"),
    "users no mapping": ("basic_auth_users: [alice]\n", 1, "must be"),
    "password plain": ("basic_auth_users:\n  alice: hunter22\n", 2, "is no bcrypt hash"),
    "password number": ("basic_auth_users:\n  alice: 123\n", 2, "is no bcrypt hash"),
    "password costly": (f"basic_auth_users:\n  alice: {HASH.replace('$10$', '$31$')}\n", 2, "cost"),
    "user with colon": (f'basic_auth_users:\n  "a:b": {HASH}\n', 2, "cannot be a user name"),
    "interval": ("rate_limit:\n  interval: often\n  burst: 1\n", 2, "must be a duration"),
    "interval without unit": ("rate_limit:\n  interval: 5\n  burst: 1\n", 2, "needs its unit"),
    "burst": ("rate_limit:\n  interval: 1s\n  burst: 0\n", 3, "from 1"),
    "rate key": ("rate_limit:\n  intervall: 1s\n", 2, "unknown"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "line", "message"), BAD.values(), ids=BAD.keys())
def test_wrong_files(folder, text, line, message):
    """Each kind of wrong file gives file, line, what is wrong and what to do, in one line."""
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    problem = caught.value.problems[0]
    assert problem.startswith(f"{folder / 'web.yml'}:{line}: ")
    assert message in problem
    assert "\n" not in problem
    assert "hunter22" not in str(caught.value)


def test_all_problems_are_reported_together(folder):
    """A file with three mistakes is mended in one go."""
    with pytest.raises(ConfigError) as caught:
        read(
            folder,
            "http_server_config:\n  http2: true\nbasic_auth_users:\n  a: b\nrate_limit:\n  interval: x\n  burst: 1\n",
        )
    assert [problem.split(":")[1] for problem in caught.value.problems] == ["2", "4", "6"]


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_files_that_are_no_text(folder, content):
    """A missing file and one that is not UTF-8 are one clear line."""
    path = folder / "web.yml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"cannot be read|UTF-8"):
        load(path)


def test_an_encrypted_key_is_refused_without_asking(folder, authority):
    """OpenSSL must not ask for a passphrase on the terminal."""
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415  only here
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key((folder / "server.key").read_bytes(), None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    (folder / "server.key").write_bytes(encrypted)
    with pytest.raises(ConfigError, match='"key_file" is encrypted'):
        read(folder, PAIR)


class TestWebFile:
    """Changes while the agent runs."""

    @pytest.fixture
    def web(self, folder):
        (folder / "web.yml").write_text(PAIR)
        web = WebFile(folder / "web.yml")
        web.load()
        return web

    @pytest.mark.parametrize("name", ["web.yml", "server.crt", "server.key"])
    def test_a_change_is_seen_once_it_rests(self, web, folder, name):
        """A change of any file is reported at the second look, when it has come to rest, and until it is loaded."""
        assert [web.changed(), web.changed()] == [False, False]
        os.utime(folder / name, ns=(1, 1))
        assert [web.changed(), web.changed(), web.changed()] == [False, True, True]
        web.load()
        assert [web.changed(), web.changed()] == [False, False]

    def test_a_bad_file_leaves_the_last_good_one(self, web, folder):
        """After an error the configuration stays, and the file is not read again before it changes again."""
        before = web.config
        (folder / "web.yml").write_text("nonsense: true\n")
        assert [web.changed(), web.changed()] == [False, True]
        with pytest.raises(ConfigError):
            web.load()
        assert web.config is before
        assert [web.changed(), web.changed()] == [False, False]
        (folder / "web.yml").write_text(PAIR + "# better\n")
        assert [web.changed(), web.changed()] == [False, True]

    def test_a_half_replaced_pair_is_taken_when_whole(self, web, folder, authority):
        """A certificate without its key is refused, and the pair is taken up when the key has come."""
        issued = authority.issue_cert("localhost")
        (folder / "server.crt").write_bytes(issued.cert_chain_pems[0].bytes())
        assert [web.changed(), web.changed()] == [False, True]
        with pytest.raises(ConfigError, match="is not the key of"):
            web.load()
        write_pair(folder, issued)
        assert [web.changed(), web.changed()] == [False, True]
        before = web.config
        assert web.load() is not before

    def test_a_file_that_vanishes_is_a_change(self, web, folder):
        """A deleted certificate is noticed, and the error says which."""
        (folder / "server.crt").unlink()
        assert [web.changed(), web.changed()] == [False, True]
        with pytest.raises(ConfigError, match=r"server\.crt"):
            web.load()

    def test_a_missing_file_may_come(self, web, folder):
        """A file that a new configuration names and that comes later is noticed when it does."""
        (folder / "web.yml").write_text(PAIR.replace("server.", "new."))
        with pytest.raises(ConfigError, match=r"new\.crt"):
            web.load()
        assert [web.changed(), web.changed()] == [False, False]
        for kind in ("crt", "key"):
            (folder / f"new.{kind}").write_bytes((folder / f"server.{kind}").read_bytes())
        assert [web.changed(), web.changed()] == [False, True]
        assert web.load().context is not None

    def test_no_file_never_changes(self):
        """Without a web configuration there is nothing to watch."""
        web = WebFile(None)
        assert web.load() == WebConfig()
        assert web.changed() is False
