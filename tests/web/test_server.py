"""The server on real sockets: TLS, client certificates, swapping configurations, stopping."""

import asyncio
import contextlib
import signal
import socket
import ssl

import bcrypt
import pytest
import trustme
from tests.web.fake_agent import FakeAgent

from coldaisle.config.web_file import WebConfig, WebFile, load
from coldaisle.web.app import create_app
from coldaisle.web.listen import bind
from coldaisle.web.server import STOP_SECONDS, WebServer

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="session")
def authority():
    return trustme.CA()


@pytest.fixture(scope="session")
def stranger():
    return trustme.CA()


@pytest.fixture
def folder(tmp_path, authority):
    replace_pair(tmp_path, authority)
    (tmp_path / "ca.crt").write_bytes(authority.cert_pem.bytes())
    return tmp_path


def replace_pair(folder, authority):
    issued = authority.issue_cert("localhost")
    (folder / "server.crt").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    (folder / "server.key").write_bytes(issued.private_key_pem.bytes())
    return ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())


def write(folder, extra=""):
    path = folder / "web.yml"
    path.write_text(f"tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n{extra}")
    return path


def client_context(authority, issued=None):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if issued is not None:
        issued.configure_cert(context)
    return context


class Harness:
    """A started server and plain clients."""

    def __init__(self):
        self.servers = []
        self.writers = []

    async def start(self, config=None, app=None, addresses=("127.0.0.1:0",)):
        server = WebServer(app or create_app(FakeAgent()), bind(addresses), config)
        self.servers.append(server)
        await server.start()
        self.port = int(server.addresses[0].rpartition(":")[2])
        return server

    async def connect(self, context=None, port=None):
        name = "localhost" if context else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port or self.port, ssl=context, server_hostname=name
        )
        self.writers.append(writer)
        return reader, writer

    async def ask(self, context=None, request=GET, connection=None, port=None):
        """Return the first line of the answer, empty if the connection was cut."""
        reader, writer = connection or await self.connect(context, port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        await reader.readexactly(length)
        return head.split(b"\r\n")[0].decode()

    async def certificate(self, context):
        _, writer = await self.connect(context)
        return writer.get_extra_info("ssl_object").getpeercert(binary_form=True)

    async def close(self):
        for writer in self.writers:
            writer.transport.abort()
        for server in self.servers:
            await server.stop()
        await asyncio.sleep(0)


@pytest.fixture
async def web():
    made = Harness()
    yield made
    await made.close()


OK = "HTTP/1.1 200 OK"
CUT = (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)


async def test_several_sockets(web):
    """Every address is answered as soon as `start` returns."""
    server = await web.start(addresses=("127.0.0.1:0", "[::1]:0", ":0"))
    assert server.started.is_set()
    assert [address.rpartition(":")[0] for address in server.addresses] == ["127.0.0.1", "[::1]", "[::]"]
    for address in (server.addresses[0], server.addresses[2]):
        assert await web.ask(port=int(address.rpartition(":")[2])) == OK


async def test_signals_stay_the_agents(web):
    """The server takes no signal handler over."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    await web.start()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


async def test_stop_frees_the_port_with_idle_clients(web):
    """Clients that hold connections open, silent or in the middle of a request, do not hold the port."""
    server = await web.start()
    idle, half = await web.connect(), await web.connect()
    assert await web.ask(connection=idle) == OK
    half[1].write(b"GET / HTTP/1.1\r\nHost:")
    await half[1].drain()
    async with asyncio.timeout(30):
        await server.stop()
        assert await idle[0].read() == b""
        with contextlib.suppress(ConnectionError):
            assert await half[0].read() == b""
    bind([f"127.0.0.1:{web.port}"])[0].close()
    assert not server.started.is_set()


async def test_stop_cuts_a_request_that_does_not_end(web):
    """A request that hangs gets its time and is cut; stopping twice is harmless."""
    entered = asyncio.Event()

    async def hang(_scope, _receive, _send):
        entered.set()
        await asyncio.Event().wait()

    server = await web.start(app=hang)
    reader, writer = await web.connect()
    writer.write(GET)
    await entered.wait()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await server.stop()
    assert loop.time() - begun >= STOP_SECONDS
    await server.stop()
    with contextlib.suppress(ConnectionError):
        assert b"200" not in await reader.read()


async def test_stop_lets_a_request_finish(web):
    """A request in progress when the server stops is answered."""
    entered, go = asyncio.Event(), asyncio.Event()

    async def slow(_scope, _receive, send):
        entered.set()
        await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    server = await web.start(app=slow)
    answer = asyncio.create_task(web.ask())
    await entered.wait()
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0)
    go.set()
    assert await answer == OK
    await stopping


async def test_tls(web, folder, authority):
    """With a certificate the port speaks TLS and nothing else."""
    await web.start(load(write(folder)))
    assert await web.ask(client_context(authority)) == OK
    with pytest.raises(CUT):
        await web.ask()


@pytest.mark.parametrize(
    ("policy", "given", "answered"),
    [
        ("NoClientCert", None, True),
        ("NoClientCert", "stranger", True),
        ("VerifyClientCertIfGiven", None, True),
        ("VerifyClientCertIfGiven", "authority", True),
        ("VerifyClientCertIfGiven", "stranger", False),
        ("RequireAndVerifyClientCert", None, False),
        ("RequireAndVerifyClientCert", "authority", True),
        ("RequireAndVerifyClientCert", "stranger", False),
    ],
)
async def test_client_certificates(web, folder, authority, stranger, policy, given, answered):
    """Who comes in follows the policy: with no certificate, with ours, with one of another CA."""
    extra = "" if policy == "NoClientCert" else "  client_ca_file: ca.crt\n"
    await web.start(load(write(folder, f"  client_auth_type: {policy}\n{extra}")))
    issuer = {"authority": authority, "stranger": stranger, None: None}[given]
    context = client_context(authority, issuer and issuer.issue_cert("client.example"))
    with contextlib.nullcontext() if answered else pytest.raises(CUT):
        assert await web.ask(context) == OK


@pytest.mark.parametrize(
    ("identities", "answered"),
    [
        (["prometheus.example"], True),
        (["a.example", "10.1.2.3"], True),
        (["fd00::12"], True),
        (["ops@example.org"], True),
        (["intruder.example"], False),
        (["*.example"], False),
    ],
)
async def test_allowed_sans(web, folder, authority, identities, answered):
    """Of the clients with a good certificate only those with an allowed name come in."""
    extra = (
        "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n"
        '  client_allowed_sans: [prometheus.example, 10.1.2.3, "fd00::12", ops@example.org]\n'
    )
    await web.start(load(write(folder, extra)))
    context = client_context(authority, authority.issue_cert(*identities))
    with contextlib.nullcontext() if answered else pytest.raises(CUT):
        assert await web.ask(context) == OK


async def test_a_renewed_certificate_is_taken_up(web, folder, authority):
    """After certificate and key were replaced on disk, new connections get the new one on the same port."""
    file = WebFile(write(folder))
    server = await web.start(file.load())
    first = await web.certificate(client_context(authority))
    renewed = replace_pair(folder, authority)
    assert [file.changed(), file.changed()] == [False, True]
    await server.apply(file.load())
    assert first != renewed
    assert await web.certificate(client_context(authority)) == renewed


async def test_plain_to_tls_and_back_with_users(web, folder, authority):
    """TLS and users come and go together, without the port being closed for a moment."""
    server = await web.start()
    listening = server._sockets[0].fileno()
    held = await web.connect()
    assert await web.ask(connection=held) == OK
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    await server.apply(load(write(folder, f"basic_auth_users:\n  alice: {hashed}\n")))
    assert await web.ask(client_context(authority)) == "HTTP/1.1 401 Unauthorized"
    right = b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic YWxpY2U6cmlnaHQ=\r\n\r\n"
    assert await web.ask(client_context(authority), right) == OK
    assert await held[0].read() == b""
    await server.apply(WebConfig())
    assert await web.ask() == OK
    assert server._sockets[0].fileno() == listening


async def test_no_scrape_fails_while_configurations_change(web):
    """Scrapers that open a connection each time see no refusal during twenty changes."""
    server = await web.start()
    done = asyncio.Event()
    answers = []

    async def scrape():
        while not done.is_set():
            answers.append(await web.ask())

    scrapers = [asyncio.create_task(scrape()) for _ in range(3)]
    for _ in range(20):
        await server.apply(WebConfig())
        seen = len(answers)
        async with asyncio.timeout(30):
            while len(answers) == seen:
                await asyncio.sleep(0)
    done.set()
    await asyncio.gather(*scrapers)
    assert set(answers) == {OK}


async def test_the_last_good_configuration_stays(web, folder, authority):
    """A generation that cannot start leaves the one that runs."""
    server = await web.start(load(write(folder)))
    running = server.config
    server._sockets.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    with pytest.raises((OSError, ValueError)):
        await server.apply(WebConfig())
    server._sockets.pop().close()
    assert server.config is running
    assert await web.ask(client_context(authority)) == OK
