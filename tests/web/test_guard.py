import asyncio
import base64
import threading

import bcrypt
import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from coldaisle.config.web_file import RateLimit, WebConfig
from coldaisle.domain.clock import FakeClock
from coldaisle.web import guard
from coldaisle.web.guard import Authenticator, BusyError, Guard

HASH = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
LONG_HASH = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()


def basic(name, password):
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.fixture
def guarded():
    guards = []

    def make(config, clock=None):
        made = Guard(PlainTextResponse("inside", headers={"X-Frame-Options": "none"}), config, clock or FakeClock())
        guards.append(made)
        return TestClient(made)

    yield make
    for made in guards:
        made.close()


def test_open_without_users(guarded):
    """Without users everybody may ask."""
    assert guarded(WebConfig()).get("/").text == "inside"


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (basic("alice", "right"), 200),
        (basic("alice", "right").replace("Basic", "basic"), 200),
        (basic("alice", "wrong"), 401),
        (basic("alice", ""), 401),
        (basic("bob", "right"), 401),
        (basic("", "right"), 401),
        (basic("long", "x" * 72), 200),
        (basic("long", "x" * 73), 401),
        (basic("alice", "right\0"), 401),
        ("Basic", 401),
        ("Basic %%%", 401),
        ("Basic " + base64.b64encode(b"alice").decode(), 401),
        ("Basic " + base64.b64encode(b"\xff:\xff").decode(), 401),
        ("Bearer right", 401),
    ],
)
def test_basic_auth(guarded, authorization, status):
    """Only a known name with its password gets in; anything else, also over bcrypt's 72 bytes, is 401."""
    client = guarded(WebConfig(users=(("alice", HASH), ("long", LONG_HASH))))
    answer = client.get("/metrics", headers={"authorization": authorization})
    assert answer.status_code == status
    assert (answer.headers.get("www-authenticate") == "Basic") is (status == 401)


def test_no_credentials_are_401(guarded):
    """Without a header the answer is 401 and asks for one."""
    answer = guarded(WebConfig(users=(("alice", HASH),))).get("/")
    assert (answer.status_code, answer.text) == (401, "Unauthorized\n")


class Checks:
    """bcrypt.checkpw that keeps book and may be held up."""

    def __init__(self):
        self.hashes = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, password, hashed):
        self.hashes.append(hashed)
        assert self.go.wait(30)
        return bcrypt.checkpw(password, hashed)


@pytest.fixture
def checks():
    return Checks()


@pytest.fixture
async def authenticator(checks):
    made = Authenticator({"alice": HASH}, checks)
    yield made
    checks.go.set()
    made.close()


async def test_verdicts_are_cached(authenticator, checks):
    """A scraper's password is hashed once, a wrong one too, and neither is kept in clear."""
    for _ in range(3):
        assert await authenticator.allows(basic("alice", "right"))
        assert not await authenticator.allows(basic("alice", "wrong"))
    assert len(checks.hashes) == 2
    assert not any(b"right" in key for key in authenticator._verdicts)


async def test_concurrent_requests_share_one_check(authenticator, checks):
    """Eight first scrapes at once cost one hash."""
    verdicts = await asyncio.gather(*(authenticator.allows(basic("alice", "right")) for _ in range(8)))
    assert verdicts == [True] * 8
    assert len(checks.hashes) == 1


async def test_unknown_names_cost_a_hash_of_the_same_cost(authenticator, checks):
    """Time does not tell which names exist."""
    assert not await authenticator.allows(basic("mallory", "right"))
    assert [hashed[:7] for hashed in checks.hashes] == [HASH[:7].encode()]


async def test_a_hash_of_nobody_lets_nobody_in(checks):
    """Even a check that says yes to everything lets no unknown name in."""
    authenticator = Authenticator({"alice": HASH}, lambda _password, _hashed: True)
    assert not await authenticator.allows(basic("mallory", "right"))
    authenticator.close()


async def test_a_flood_of_guesses_is_refused(authenticator, checks):
    """Beyond a bounded queue guesses are refused at once, and the cached scraper still gets in."""
    assert await authenticator.allows(basic("alice", "right"))
    checks.go.clear()
    guesses = [asyncio.create_task(authenticator.allows(basic("alice", str(n)))) for n in range(guard._MOST_WAITING)]
    while authenticator._waiting < guard._MOST_WAITING:  # noqa: ASYNC110  nothing tells of a queue's length
        await asyncio.sleep(0)
    with pytest.raises(BusyError):
        await authenticator.allows(basic("alice", "one more"))
    assert await authenticator.allows(basic("alice", "right"))
    checks.go.set()
    assert await asyncio.gather(*guesses) == [False] * len(guesses)


async def test_guesses_do_not_push_out_right_verdicts(authenticator, checks, monkeypatch):
    """However many guesses are remembered and forgotten, the scraper's password is not hashed again."""
    monkeypatch.setattr(guard, "_MOST_VERDICTS", 4)
    assert await authenticator.allows(basic("alice", "right"))
    for guess in range(10):
        await authenticator.allows(basic("alice", str(guess)))
    hashed = len(checks.hashes)
    assert await authenticator.allows(basic("alice", "right"))
    assert len(checks.hashes) == hashed
    assert len(authenticator._verdicts) == 4


def test_rate_limit(guarded):
    """A burst passes, more is 429, and time fills the bucket up again, never above the burst."""
    clock = FakeClock()
    client = guarded(WebConfig(rate_limit=RateLimit(interval=2.0, burst=3)), clock)
    assert [client.get("/").status_code for _ in range(4)] == [200, 200, 200, 429]
    clock.advance(2.0)
    assert [client.get("/").status_code for _ in range(2)] == [200, 429]
    clock.advance(1_000)
    assert [client.get("/").status_code for _ in range(4)] == [200, 200, 200, 429]


def test_headers_replace_the_applications(guarded):
    """Configured headers are on every answer, refusals too, and replace ours of the same name."""
    client = guarded(WebConfig(headers=(("X-Frame-Options", "deny"),), users=(("alice", HASH),)))
    assert client.get("/").headers.get_list("x-frame-options") == ["deny"]
    answer = client.get("/", headers={"authorization": basic("alice", "right")})
    assert answer.headers.get_list("x-frame-options") == ["deny"]
