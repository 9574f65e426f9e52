"""The distribution's own Prometheus scrapes the agent: always up, every family has data, also while things break."""

import json
import os
import shutil
import signal
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from tests.e2e.conftest import free_port

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None,
    reason="prometheus is not installed (make test installs it as root on Debian)",
)
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (make test installs it as root on Debian)"
)
PINNED = Path(__file__).parents[1] / "repository/metric_names.txt"
# Families that have nothing to say in a short run, each with its reason; everything else must have data.
WITHOUT_DATA = {
    "coldaisle_job_duration_seconds": "slow jobs first run after minutes",
    "coldaisle_job_last_success_timestamp_seconds": "slow jobs first run after minutes",
}
CORE = "dgx_gpu_temperature_celsius{sensor='core'}"
SCENARIO = """
description: a child that crashes, a GPU that hangs for a minute
events:
  - {at: 10s, fault: segfault, gpu: 4, for: 5s}
  - {at: 35s, fault: hang, gpu: 3, for: 60s}
"""


class Prometheus:
    """A Prometheus of the distribution that scrapes one agent."""

    def __init__(self, directory, agent, interval):
        self.port = free_port()
        config = directory / "prometheus.yml"
        config.write_text(
            f"global: {{scrape_interval: {interval}, scrape_timeout: {interval}}}\nscrape_configs:\n"
            f"- {{job_name: dgx, static_configs: [{{targets: ['127.0.0.1:{agent.port}']}}]}}\n"
        )
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}",
             f"--web.listen-address=127.0.0.1:{self.port}"], stderr=subprocess.DEVNULL,
        )
        pytest.until(lambda: self.query("up == 1"), "the first scrape")

    def api(self, path, **parameters):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def query(self, expression):
        """What an instant query finds; nothing while Prometheus starts."""
        data = self.api("query", query=expression)
        return data["result"] if data else []

    def value(self, expression):
        """The one value of an expression, None if there is none."""
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else None

    def scraped(self, more):
        """Wait until so many more scrapes have been tried, failed ones included."""
        wanted = (self.value("count_over_time(up[1h])") or 0) + more
        pytest.until(lambda: (self.value("count_over_time(up[1h])") or 0) >= wanted, f"{wanted} scrapes", 15 * more + 30)

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def scraping(tmp_path):
    """Start a Prometheus that scrapes an agent every `interval`; it ends with the test."""
    servers = []

    def begin(agent, interval="1s"):
        server = Prometheus(tmp_path, agent, interval)
        servers.append(server)
        return server

    yield begin
    for server in servers:
        server.stop()


def break_config(agent):
    agent.config.write_text(agent.config.read_text() + "nonsense: 1\n")
    agent.process.send_signal(signal.SIGHUP)


@needs_prometheus
def test_always_up_while_things_break(dgx, scraping):
    """Child killed, GPU hung, configuration broken: every single scrape succeeds, and seven GPUs never miss one."""
    prometheus = scraping(dgx)
    pytest.until(lambda: len(prometheus.query(CORE)) == 8, "eight GPUs in Prometheus")
    os.kill(dgx.children()[0], signal.SIGKILL)
    prometheus.scraped(4)
    dgx.simulator.fault("hang", gpu=3, seconds=60)
    prometheus.scraped(5)
    break_config(dgx)
    prometheus.scraped(8)
    assert prometheus.value("min_over_time(up[1h])") == 1
    assert prometheus.value("coldaisle_config_last_reload_successful") == 0
    present = {series["metric"]["gpu"] for series in prometheus.query(CORE)}
    assert present == {"0", "1", "2", "4", "5", "6", "7"}
    # From before the kill on, every scrape holds each of the seven.
    missed = prometheus.query(
        "count_over_time(dgx_gpu_temperature_celsius{sensor='core',gpu!='3'}[17s])"
        " < on(instance) group_left count_over_time(up[17s])"
    )
    assert missed == []


@needs_prometheus
@pytest.mark.long
def test_two_minutes_at_five_seconds(start, tmp_path, scraping):
    """The usual interval over two minutes with a scripted crash and a minute's hang: up throughout, complete at the end."""
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(SCENARIO)
    agent = start(
        "--simulate", "dgx-h200", "--scenario", str(scenario), config="gpu: {hang_deadline: 2s}\n"
    ).wait_ready()
    prometheus = scraping(agent, "5s")
    prometheus.scraped(14)
    good = agent.config.read_text()
    break_config(agent)
    prometheus.scraped(5)
    assert prometheus.value("coldaisle_config_last_reload_successful") == 0
    agent.config.write_text(good)
    prometheus.scraped(5)
    assert prometheus.value("min_over_time(up[1h])") == 1
    assert prometheus.value("coldaisle_config_last_reload_successful") == 1
    restarts = prometheus.value("sum(coldaisle_child_restarts_total{reason='crash'})")
    assert restarts is not None
    assert restarts >= 1
    pytest.until(lambda: len(prometheus.query(CORE)) == 8, "eight GPUs after the hang", 60)


@needs_prometheus
def test_every_family_has_data(dgx, scraping):
    """Every pinned family arrives in Prometheus, with the type that the list gives it."""
    prometheus = scraping(dgx)
    dgx.simulator.fault("xid", gpu=2, xid=31, text="MMU Fault")
    wanted = dict(line.split()[:2] for line in PINNED.read_text().splitlines())

    def without():
        names = prometheus.api("label/__name__/values") or []
        return {
            name for name, kind in wanted.items() if (f"{name}_count" if kind == "histogram" else name) not in names
        } - WITHOUT_DATA.keys()

    missing = pytest.settled(without, set())
    assert missing == set()
    # Prometheus asks for OpenMetrics, where a family is named without the suffix of its samples.
    types = {name: entry[0]["type"] for name, entry in prometheus.api("metadata").items()}
    told = {name: types.get(name.removesuffix("_total").removesuffix("_info")) for name in wanted.keys() - WITHOUT_DATA.keys()}
    assert told == {name: wanted[name].replace("stateset", "gauge") for name in told}


@needs_promtool
def test_promtool_finds_nothing(dgx):
    """`promtool check metrics` has no finding, with a fault on one GPU as without."""
    dgx.simulator.fault("xid", gpu=2, xid=31, text="MMU Fault")
    pytest.until(lambda: any(name.startswith("dgx_gpu_xid_total") and 'xid="31"' in name for name in dgx.series()), "the Xid")
    done = subprocess.run(["promtool", "check", "metrics"], input=dgx.get("/metrics")[1], capture_output=True)
    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (0, "", "")
