"""The distribution's own Prometheus scrapes the agent: always up, every family has data, also while things break."""

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.parse
import urllib.request

import pytest
from tests.e2e.conftest import free_port

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed (scripts/install-test-servers.sh needs root on Debian)"
)
SECONDS = float(os.environ.get("PROMETHEUS_SECONDS", "20"))


@pytest.fixture
def prometheus(tmp_path, dgx):
    port = free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n"
        f"- {{job_name: dgx, static_configs: [{{targets: ['127.0.0.1:{dgx.port}']}}]}}\n"
    )
    process = subprocess.Popen(
        ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
         f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL,
    )

    def query(expression):
        url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)["data"]["result"]
        except OSError:
            return []

    pytest.until(lambda: query("up == 1"), "the first scrape")
    yield query
    process.terminate()
    process.wait(20)


def watch(seconds):
    end = time.monotonic() + seconds
    pytest.until(lambda: time.monotonic() >= end, "the watch", seconds + 30)


def test_always_up_while_things_break(dgx, prometheus):
    """Child killed, GPU hung, configuration broken: every single scrape still succeeds."""
    os.kill(dgx.children()[0], signal.SIGKILL)
    watch(SECONDS / 4)
    dgx.simulator.fault("hang", gpu=3, seconds=60)
    watch(SECONDS / 4)
    dgx.config.write_text(dgx.config.read_text() + "nonsense: 1\n")
    dgx.process.send_signal(signal.SIGHUP)
    watch(SECONDS / 2)
    (up,) = prometheus("min_over_time(up[1h])")
    assert up["value"][1] == "1"
    (count,) = prometheus("count_over_time(up[1h])")
    assert float(count["value"][1]) >= SECONDS / 2
    assert prometheus("coldaisle_config_last_reload_successful == 0")
    assert len(prometheus("dgx_gpu_temperature_celsius{sensor='core'}")) == 7


def test_every_family_has_data(dgx, prometheus):
    """Every family that the page declares arrives in Prometheus, with the type that it declares."""
    text = dgx.get("/metrics")[1].decode()
    declared = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")}
    assert len(declared) > 80
    watch(3)
    for name, kind in declared.items():
        series = prometheus(f"count({name}{'_count' if kind == 'histogram' else ''})")
        assert series, name


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing(dgx):
    """`promtool check metrics` has no finding."""
    done = subprocess.run(["promtool", "check", "metrics"], input=dgx.get("/metrics")[1], capture_output=True)
    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (0, "", "")
