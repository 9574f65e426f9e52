"""Measures what the agent costs, beside the distribution's node exporter, in one run. `make bench`.

Eight simulated GPUs at 1 s, scraped every 15 s unless said otherwise. The simulator's own cost is apart.
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
        time.sleep(0.01)  # a poll with a deadline
    raise SystemExit(f"nothing ready on {port}{path}")


def steady(pids, port, seconds, every=15):
    """CPU percent of one core by role over `seconds`, scraped every `every` seconds."""
    before = {role: cpu(pid) for role, pid in pids.items()}
    start = time.monotonic()
    while (left := seconds - (time.monotonic() - start)) > 0:
        Client(port, {"Accept-Encoding": "gzip"}).get()
        time.sleep(min(every, left))  # the scrape interval
    elapsed = time.monotonic() - start
    return {role: round(100 * (cpu(pid) - before[role]) / elapsed, 3) for role, pid in pids.items()}


def port_is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def stop(process, port):
    """Seconds from SIGTERM until the port is free, and until the process has ended."""
    stopping = time.monotonic()
    process.send_signal(signal.SIGTERM)
    while not port_is_free(port):
        time.sleep(0.005)  # a poll: how soon is what is measured
    free = time.monotonic() - stopping
    process.wait(30)
    return round(free, 3), round(time.monotonic() - stopping, 3)


class Agent:
    """The agent on a simulated DGX; ends with the `with` block."""

    def __init__(self, directory):
        self.port, self.directory = free_port(), directory
        config = Path(directory) / "c.yaml"
        config.write_text(f"paths: {{runtime: {directory}/run, state: {directory}/state}}\n")
        started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "coldaisle", "run", "--config", str(config), "--simulate", "dgx-h200", "--gpus", "8",
             "--web.listen-address", f"127.0.0.1:{self.port}"], stderr=subprocess.DEVNULL)
        wait_http(self.port, "/readyz")
        self.ready = round(time.monotonic() - started, 2)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def without_simulator(by_role, digits):
    return round(sum(value for role, value in by_role.items() if role != "simulator"), digits)


def measure_cost(agent, seconds):
    """CPU and memory at rest, by process; memory again after the scrapes, to see whether it is flat."""
    time.sleep(5)  # what starting costs is over
    pids = family(agent.process.pid)
    processor = steady(pids, agent.port, seconds)
    memory = {role: round(pss(pid), 1) for role, pid in pids.items()}
    return {
        "cpu_percent": without_simulator(processor, 3), "cpu_percent_by_process": processor,
        "pss_mib": without_simulator(memory, 1), "pss_mib_by_process": memory,
    }


def measure_scrapes(port, count, seconds):
    return {
        "scrape_ms": latencies(port, count),
        "gzip_ms": latencies(port, count, {"Accept-Encoding": "gzip"}),
        "scrapes_per_second_8": round(throughput(port, 8, seconds)),
    }


def measure_agent(arguments):
    with tempfile.TemporaryDirectory() as directory:
        with Agent(directory) as agent:
            result = {"start_to_ready_s": agent.ready, **measure_cost(agent, arguments.seconds)}
            body = Client(agent.port).get()[1].decode()
            result["series"] = sum(1 for line in body.splitlines() if not line.startswith("#"))
            result["bytes"] = len(body)
            result |= measure_scrapes(agent.port, arguments.scrapes, arguments.load_seconds)
            memory = {role: pss(pid) for role, pid in family(agent.process.pid).items()}
            result["pss_mib_after_load"] = without_simulator(memory, 1)
            hang(directory)
            result["scrape_during_hang_ms"] = latencies(agent.port, arguments.scrapes)
            result["port_free_s_during_hang"], result["exit_s_during_hang"] = stop(agent.process, agent.port)
    with tempfile.TemporaryDirectory() as directory, Agent(directory) as agent:
        result["port_free_s"], result["exit_s"] = stop(agent.process, agent.port)
    return result


def hang(directory):
    """Make GPU 3 hang, and wait until the agent has noticed."""
    from coldaisle.simulation.control import Client as Simulator

    with Simulator(f"{directory}/run/simulator") as simulator:
        simulator.fault("hang", gpu=3, seconds=120)
    time.sleep(4)  # until the hang is judged


def measure_node_exporter(arguments):
    if shutil.which("prometheus-node-exporter") is None:
        print("skipped: prometheus-node-exporter is not installed (make bench installs it as root on Debian)")
        return None
    port = free_port()
    started = time.monotonic()
    exporter = subprocess.Popen(["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{port}"],
                                stderr=subprocess.DEVNULL)
    try:
        wait_http(port, "/metrics")
        result = {"start_to_ready_s": round(time.monotonic() - started, 2)}
        time.sleep(2)  # what starting costs is over
        result["cpu_percent"] = steady({"main": exporter.pid}, port, arguments.seconds)["main"]
        result["pss_mib"] = round(pss(exporter.pid), 1)
        body = Client(port).get()[1].decode()
        result["series"] = sum(1 for line in body.splitlines() if not line.startswith("#"))
        result["bytes"] = len(body)
        result |= measure_scrapes(port, min(arguments.scrapes, 300), arguments.load_seconds)
        result["port_free_s"], result["exit_s"] = stop(exporter, port)
        return result
    finally:
        if exporter.poll() is None:
            exporter.kill()
            exporter.wait()


# What the table shows: words, where the number is, the goal and whether it is a floor instead of a ceiling.
ROWS = (
    ("CPU, % of one core (1 s sampling, a scrape each 15 s)", "cpu_percent", 1.0),
    ("PSS, MiB", "pss_mib", 75.0),
    ("PSS after the scrapes below, MiB", "pss_mib_after_load", 75.0),
    ("series", "series", -1000),
    ("scrape p50, ms", "scrape_ms.p50", None),
    ("scrape p99, ms", "scrape_ms.p99", 1.0),
    ("gzip scrape p50, ms", "gzip_ms.p50", None),
    ("gzip scrape p99, ms", "gzip_ms.p99", 3.0),
    ("scrapes/s, 8 clients", "scrapes_per_second_8", -1000),
    ("scrape p50 while a GPU hangs, ms", "scrape_during_hang_ms.p50", None),
    ("scrape p99 while a GPU hangs, ms", "scrape_during_hang_ms.p99", 1.0),
    ("start to ready, s", "start_to_ready_s", 3.0),
    ("SIGTERM to port free, s", "port_free_s", 2.0),
    ("SIGTERM to port free while a GPU hangs, s", "port_free_s_during_hang", 2.0),
)


def look_up(result, path):
    for name in path.split("."):
        result = result.get(name) if isinstance(result, dict) else None
    return result


def goal_text(value, goal):
    """`goal` is a ceiling, or a floor if it is negative."""
    if goal is None:
        return ""
    met = value >= -goal if goal < 0 else value <= goal
    return f"{'>=' if goal < 0 else '<='} {abs(goal):g} {'met' if met else 'MISSED'}"


def table(ours, theirs):
    rows = [("", "coldaisle", "goal", "node exporter", "ratio")]
    for words, path, goal in ROWS:
        mine, other = look_up(ours, path), look_up(theirs or {}, path)
        ratio = f"{mine / other:.2f}" if other else ""
        rows.append((words, f"{mine:g}", goal_text(mine, goal), "" if other is None else f"{other:g}", ratio))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="of the steady CPU measurement (default 60)")
    parser.add_argument("--scrapes", type=int, default=500, help="of each latency measurement (default 500)")
    parser.add_argument("--load-seconds", type=float, default=4, help="of scraping with 8 clients (default 4)")
    parser.add_argument("--output", type=Path, default=Path("build/bench.json"), help="where the JSON goes")
    arguments = parser.parse_args()
    ours = measure_agent(arguments)
    theirs = measure_node_exporter(arguments)
    print(table(ours, theirs))
    for words, name in (("CPU %", "cpu_percent_by_process"), ("PSS MiB", "pss_mib_by_process")):
        print(f"{words} by process:", ", ".join(f"{role} {value:g}" for role, value in ours[name].items()))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    goals = {path: goal for _, path, goal in ROWS if goal is not None}
    arguments.output.write_text(json.dumps({"goals": goals, "agent": ours, "node_exporter": theirs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
