"""Measures what the agent costs, beside the distribution's node exporter, in one run. `make bench`.

Eight simulated GPUs at 1 s, scraped every 15 s unless said otherwise. The simulator's own cost is printed apart.
Prints a table and writes build/bench.json. Asserts nothing: numbers are for people.
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
GOALS = {
    "cpu_percent": 1.0, "pss_mib": 75.0, "scrape_p99_ms": 1.0, "gzip_p99_ms": 3.0, "scrapes_per_second_8": 1000.0,
    "start_to_ready_s": 3.0, "port_free_s": 2.0,
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cpu(pid):
    # schedstat counts nanoseconds; the ticks of /proc/PID/stat are too coarse for one per cent.
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue
    return total / 1e9


def pss(pid):
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def family(pid):
    """{role: pid} of a process and its children."""
    found = {"main": pid}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                command = (entry / "cmdline").read_text()
            except OSError:
                continue
            if parent == pid:
                role = next((r for r in ("nvml_child", "reader", "simulator") if r in command), command[:20])
                found[role] = int(entry.name)
    return found


class Client:
    def __init__(self, port, headers=None):
        self.port, self.headers = port, headers or {}
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)

    def get(self, path="/metrics"):
        start = time.perf_counter()
        self.connection.request("GET", path, headers=self.headers)
        body = self.connection.getresponse().read()
        return time.perf_counter() - start, body


def latencies(port, count, headers=None):
    client = Client(port, headers)
    client.get()
    times = []
    for _ in range(count):
        times.append(client.get()[0] * 1e3)
        time.sleep(0.004)  # not in step with the tick
    times.sort()
    return {"p50": round(statistics.median(times), 3), "p99": round(times[int(len(times) * 0.99)], 3)}


def _hammer(port, seconds):
    client, count, end = Client(port), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        client.get()
        count += 1
    return count


def throughput(port, clients, seconds):
    with concurrent.futures.ProcessPoolExecutor(clients) as pool:
        return sum(pool.map(_hammer, [port] * clients, [seconds] * clients)) / seconds


def wait_http(port, path, deadline=60):
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.01)
    raise SystemExit(f"nothing ready on {port}{path}")


def steady(pids, port, seconds, every=15):
    """CPU percent of one core by role over `seconds`, scraped every `every` seconds."""
    before = {role: cpu(pid) for role, pid in pids.items()}
    start = time.monotonic()
    while (left := seconds - (time.monotonic() - start)) > 0:
        Client(port, {"Accept-Encoding": "gzip"}).get()
        time.sleep(min(every, left))
    elapsed = time.monotonic() - start
    return {role: round(100 * (cpu(pid) - before[role]) / elapsed, 3) for role, pid in pids.items()}


def measure_agent(seconds):
    result = {}
    with tempfile.TemporaryDirectory() as directory:
        port = free_port()
        config = Path(directory) / "c.yaml"
        config.write_text(f"paths: {{runtime: {directory}/run, state: {directory}/state}}\n")
        started = time.monotonic()
        agent = subprocess.Popen(
            [sys.executable, "-m", "coldaisle", "run", "--config", str(config), "--simulate", "dgx-h200",
             "--web.listen-address", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
        try:
            wait_http(port, "/readyz")
            result["start_to_ready_s"] = round(time.monotonic() - started, 2)
            time.sleep(5)
            pids = family(agent.pid)
            by_role = steady(pids, port, seconds)
            result["cpu_percent_by_process"] = by_role
            result["cpu_percent"] = round(sum(v for role, v in by_role.items() if role != "simulator"), 3)
            memory = {role: round(pss(pid), 1) for role, pid in pids.items()}
            result["pss_mib_by_process"] = memory
            result["pss_mib"] = round(sum(v for role, v in memory.items() if role != "simulator"), 1)
            body = Client(port).get()[1].decode()
            result["series"] = sum(1 for line in body.splitlines() if not line.startswith("#"))
            result["bytes"] = len(body)
            result["scrape_ms"] = latencies(port, 500)
            result["gzip_ms"] = latencies(port, 500, {"Accept-Encoding": "gzip"})
            result["scrapes_per_second_8"] = round(throughput(port, 8, 4))
            from coldaisle.simulation.control import Client as Simulator

            Simulator(f"{directory}/run/simulator").fault("hang", gpu=3, seconds=120)
            time.sleep(4)
            result["scrape_during_hang_ms"] = latencies(port, 300)
            stopping = time.monotonic()
            agent.send_signal(signal.SIGTERM)
            while True:
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    try:
                        probe.bind(("127.0.0.1", port))
                        break
                    except OSError:
                        time.sleep(0.005)
            result["port_free_s_during_hang"] = round(time.monotonic() - stopping, 3)
            agent.wait(30)
            result["exit_s_during_hang"] = round(time.monotonic() - stopping, 3)
        finally:
            if agent.poll() is None:
                agent.kill()
    return result


def measure_node_exporter(seconds):
    if shutil.which("prometheus-node-exporter") is None:
        print("skipped: prometheus-node-exporter is not installed (scripts/install-test-servers.sh)")
        return None
    port = free_port()
    exporter = subprocess.Popen(["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{port}"],
                                stderr=subprocess.DEVNULL)
    try:
        wait_http(port, "/metrics")
        time.sleep(2)
        return {
            "cpu_percent": steady({"main": exporter.pid}, port, seconds)["main"],
            "pss_mib": round(pss(exporter.pid), 1),
            "scrape_ms": latencies(port, 300),
            "gzip_ms": latencies(port, 300, {"Accept-Encoding": "gzip"}),
            "scrapes_per_second_8": round(throughput(port, 8, 4)),
        }
    finally:
        exporter.terminate()
        exporter.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="of the steady CPU measurement")
    arguments = parser.parse_args()
    ours = measure_agent(arguments.seconds)
    theirs = measure_node_exporter(min(arguments.seconds, 45))
    print(json.dumps(ours, indent=1))
    print("node exporter:", json.dumps(theirs))
    if theirs:
        print("\n| | coldaisle | node exporter | ratio |\n|---|---|---|---|")
        for name, a, b in (
            ("CPU % of one core (sampled each second / scraped each 15 s)", ours["cpu_percent"], theirs["cpu_percent"]),
            ("PSS MiB", ours["pss_mib"], theirs["pss_mib"]),
            ("scrape p50 ms", ours["scrape_ms"]["p50"], theirs["scrape_ms"]["p50"]),
            ("scrape p99 ms", ours["scrape_ms"]["p99"], theirs["scrape_ms"]["p99"]),
            ("gzip scrape p99 ms", ours["gzip_ms"]["p99"], theirs["gzip_ms"]["p99"]),
            ("scrapes/s, 8 clients", ours["scrapes_per_second_8"], theirs["scrapes_per_second_8"]),
        ):
            print(f"| {name} | {a} | {b} | {a / b if b else 0:.2f} |")
    Path("build").mkdir(exist_ok=True)
    Path("build/bench.json").write_text(json.dumps({"goals": GOALS, "agent": ours, "node_exporter": theirs}, indent=1))


if __name__ == "__main__":
    main()
