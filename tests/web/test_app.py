"""The HTTP application, asked in process."""

import gzip
import html
from html.parser import HTMLParser

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from starlette.testclient import TestClient
from tests.web.fake_agent import REMEDY, FakeAgent

from coldaisle.domain.events import Event, Severity
from coldaisle.domain.health import Health, State
from coldaisle.web.app import create_app
from coldaisle.web.page import ABSENT

PATHS = ("/", "/metrics", "/healthz", "/readyz", "/health", "/api/v1/node", "/api/v1/events", "/api/v1/health", "/docs")
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;"
    "q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.fixture
def agent():
    return FakeAgent()


@pytest.fixture
def client(agent):
    return TestClient(create_app(agent), headers={"accept-encoding": "identity"})


def test_metrics_text_by_default(client, agent):
    """A scraper that asks for nothing special gets the text format, uncompressed, and caches are told what matters."""
    answer = client.get("/metrics")
    assert answer.content == agent.page.text()
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers["vary"] == "Accept, Accept-Encoding"
    assert "content-encoding" not in answer.headers


def test_metrics_as_prometheus_asks(client, agent):
    """Prometheus gets OpenMetrics in gzip."""
    with client.stream("GET", "/metrics", headers={"accept": PROMETHEUS, "accept-encoding": "gzip"}) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(raw) == agent.page.openmetrics()
    assert [family.name for family in parse_openmetrics(gzip.decompress(raw).decode())] == [
        "dgx_gpu_temperature_celsius"
    ]


@pytest.mark.parametrize("path", PATHS)
def test_head_is_get_without_body(client, path):
    """HEAD answers everywhere with GET's headers and no body."""
    got, head = client.get(path), client.head(path)
    assert head.status_code == got.status_code == 200
    assert head.content == b""
    assert head.headers["content-length"] == str(len(got.content))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written(client, path, method):
    """Every other method is refused."""
    answer = client.request(method, path)
    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "/api", "/static/../../etc/passwd", "/%00"])
def test_unknown_paths_are_a_plain_404(client, path):
    """An unknown path is said in plain text and never redirected."""
    answer = client.get(path, follow_redirects=False)
    assert answer.status_code == 404
    assert answer.text == "404 page not found\n"
    assert answer.headers["content-type"].startswith("text/plain")


def test_a_failure_shows_no_traceback(client, agent, caplog):
    """What goes wrong inside is logged, and the client learns nothing but that it did."""
    agent.error = RuntimeError("the secret of the inside")
    answer = client.get("/metrics")
    assert (answer.status_code, answer.text) == (500, "500 internal error\n")
    assert "the secret of the inside" in caplog.text


def test_health_names_every_part(client):
    """Each part has name, state, reason, age and action; a lost GPU leaves the node serving."""
    answer = client.get("/health")
    assert answer.status_code == 200
    body = answer.json()
    assert (body["state"], body["serving"]) == ("degraded", True)
    (lost,) = [part for part in body["parts"] if part["name"] == "gpu 3"]
    assert lost["age_seconds"] == 1804
    assert (lost["state"], lost["action"]) == ("failed", REMEDY)
    (dcgm,) = [part for part in body["parts"] if part["name"] == "dcgm"]
    assert dcgm["age_seconds"] is None


def test_health_is_503_only_when_not_serving(client, agent):
    """A load balancer learns that sampling has stopped; the API says the same without failing."""
    agent.serving = False
    assert client.get("/health").status_code == 503
    assert client.get("/health").json()["state"] == "failed"
    assert client.get("/api/v1/health").status_code == 200
    assert client.get("/healthz").text == "ok\n"


def test_ready_says_what_is_awaited(client, agent):
    """Not ready is 503 with the reason, ready is 200."""
    agent.awaited = "waiting for nvml"
    answer = client.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "not ready: waiting for nvml\n")
    agent.awaited = ""
    assert client.get("/readyz").text == "ready\n"


def test_node_leaves_absent_values_null(client):
    """The API gives base units, and null for what was not read."""
    body = client.get("/api/v1/node").json()
    assert body["simulated"] is True
    assert body["gpus"][0]["temperature_celsius"] == 62
    assert body["gpus"][3]["temperature_celsius"] is None
    assert body["gpus"][3]["state"] == "lost"
    assert body["filesystems"][4]["size_bytes"] is None


def test_events_since(client, agent):
    """A client reads on from the last number it saw, and learns when it has missed some."""
    assert [event["sequence"] for event in client.get("/api/v1/events?since=3").json()["events"]] == [4, 5]
    for number in range(100):
        agent.events.append(Event(0.0, "log", f"event_{number}", Severity.INFO, "", "test", facts=(("a", "b"),)))
    body = client.get("/api/v1/events?since=5").json()
    assert (body["last"], body["missed"], len(body["events"])) == (105, 50, 50)
    assert body["events"][0]["facts"] == {"a": "b"}
    assert client.get("/api/v1/events?since=900").json() == {"last": 105, "missed": 0, "events": []}


@pytest.mark.parametrize("since", ["-1", "x", "1e99"])
def test_events_refuse_what_is_no_number(client, since):
    """A wrong `since` is the client's error, in JSON."""
    assert client.get("/api/v1/events", params={"since": since}).status_code == 422


def test_openapi_is_typed(client):
    """The description has a schema for every JSON answer, and the page that shows it loads nothing from elsewhere."""
    paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) == set(PATHS) - {"/", "/metrics", "/docs"}
    assert paths["/health"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith(
        "HealthAnswer"
    )
    assert "/api/v1/node" in client.get("/docs").text
    assert "http://" not in client.get("/docs").text
    assert "https://" not in client.get("/docs").text


class Page(HTMLParser):
    """Checks that tags nest, and collects text and outside references."""

    VOID = ("meta", "link", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.references = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.references += [value for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_page_shows_the_node(client):
    """The page says what node this is, that it is simulated, how it is, and what to do."""
    answer = client.get("/")
    page = Page(answer.text)
    text = " ".join(" ".join(page.texts).split())
    for shown in (
        "dgx-a07",
        "NVIDIA DGX H200",
        "Simulated machine",
        "degraded",
        "62 °C",
        "1,755 MHz",
        "sw power cap",
        "/mnt/lustre",
        "Xid 79",
    ):
        assert shown in text.replace("\xa0", " "), shown
    assert html.escape(REMEDY).split("`")[0] in answer.text
    assert all(reference.startswith(("/", "data:")) for reference in page.references)
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_page_of_a_lost_gpu_shows_dashes(client):
    """Absent is a dash in every cell, never a zero."""
    row = client.get("/").text.split('<th scope="row" title="NVIDIA H200 GPU-5d1c0a03')[1].split("</tr>")[0]
    assert row.count(ABSENT) == 7
    assert ">0" not in row


def test_page_escapes_everything(client, agent):
    """Text from drivers, mounts and logs cannot become markup."""
    evil = "<script>alert(1)</script>\"'&"
    gpu = agent.view.gpus[0]
    agent.view = agent.view._replace(
        hostname=evil, product=evil, driver_version=evil, cuda_version=evil, nvml_version=evil, mode=evil, reason=evil,
        gpus=(gpu._replace(identity=gpu.identity._replace(name=evil, uuid=evil, pci_bus_id=evil), reason=evil, reasons=(evil,)),),
        filesystems=(agent.view.filesystems[0]._replace(mountpoint=evil, device=evil, type=evil, problem=evil),),
        sources=(Health(evil, State.FAILED, evil, f"`{evil}`"), Health(evil, State.OK), Health(evil, State.FAILED, "", "`odd")),
    )  # fmt: skip
    agent.events.append(Event(0.0, evil, evil, Severity.INFO, evil, evil, evil))
    text = client.get("/").text
    Page(text)
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#x27;&amp;") >= 18


def test_page_of_an_empty_node(client, agent):
    """A node without driver, GPUs, filesystems or a sample yet has a page all the same."""
    agent.view = agent.view._replace(
        simulated=False, released=True, gpus=(), filesystems=(), sources=(), state=State.STARTING, reason="", sampled_at=None,
        product="", driver_version="", cuda_version="", nvml_version="", expected_gpus=None,
    )  # fmt: skip
    text = client.get("/").text
    Page(text)
    for shown in ("No GPU answers.", "No filesystem is watched.", "not sampled yet", "unknown product", "Released"):
        assert shown in text
    assert "Simulated" not in text
