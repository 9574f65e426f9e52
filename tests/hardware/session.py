"""Runs the agent on a real GPU under a list of loads and compares what it says with nvidia-smi in the same moment.

    python tests/hardware/session.py --out DIR idle:60 compute_bf16_matmul:300 idle:300 memory_copy:90 ab:12

Read-only: nothing of the GPU is ever set. As root, the agent runs as an unprivileged user. `ab:N` runs the bf16 matmul
in turns of N seconds with the agent running and stopped (SIGSTOP of none of it: it is really ended and started).
Results are written as they come: `compare.jsonl`, `timeline.jsonl`, `recording.jsonl.gz`, `summary.txt`.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]
PORT = 10981
SMI = {
    "temperature.gpu": ("dgx_gpu_temperature_celsius{", 'sensor="core"', 1),
    "temperature.memory": ("dgx_gpu_temperature_celsius{", 'sensor="memory"', 1),
    "power.draw.average": ("dgx_gpu_power_average_watts{", "", 1),
    "power.draw.instant": ("dgx_gpu_power_watts{", "", 1),
    "clocks.sm": ("dgx_gpu_clock_hertz{", 'clock="sm"', 1e-6),
    "clocks.mem": ("dgx_gpu_clock_hertz{", 'clock="memory"', 1e-6),
    "memory.used": ("dgx_gpu_memory_bytes{", 'state="used"', 1 / 1048576),
    "utilization.gpu": ("dgx_gpu_utilization_ratio{", "", 100),
    "power.limit": ("dgx_gpu_power_limit_watts{", 'kind="requested"', 1),
}


def unprivileged():
    return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if os.getuid() == 0 else []


class Agent:
    def __init__(self, out, record):
        self.work = Path("/tmp/coldaisle-hardware")
        self.work.mkdir(mode=0o777, exist_ok=True)
        self.work.chmod(0o777)
        self.record = self.work / record if record else None
        config = self.work / "config.yaml"
        config.write_text(f"mode: observe\npaths: {{runtime: {self.work}/run, state: {self.work}/state}}\n")
        command = [*unprivileged(), sys.executable, "-m", "coldaisle", "run", "--config", str(config),
                   "--web.listen-address", f"127.0.0.1:{PORT}"]
        if self.record:
            command += ["--record", str(self.record)]
        path = f"{ROOT / 'agent'}:{os.environ.get('PYTHONPATH', '')}"
        started = time.monotonic()
        self.process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path, "HOME": str(self.work)},
                                        stderr=(out / "agent.log").open("a"))
        while self.get("/readyz") is None:
            if self.process.poll() is not None or time.monotonic() - started > 30:
                raise SystemExit("the agent did not become ready: see agent.log")
            time.sleep(0.02)
        self.ready_after = time.monotonic() - started

    @staticmethod
    def get(path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=2) as answer:
                return answer.read().decode()
        except OSError:
            return None

    def pids(self):
        found = [self.process.pid]
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                if int(stat[1]) == self.process.pid:
                    found.append(int(entry.name))
        return found

    def cpu(self):
        total = 0.0
        for pid in self.pids():
            try:
                total += sum(int(x) for x in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])
            except OSError:
                continue
        return total / os.sysconf("SC_CLK_TCK")

    def memory(self):
        result = {}
        for pid in self.pids():
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                name = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            role = next((r for r in ("nvml_child", "reader") if r in name), "main")
            result[role] = round(int(next(l for l in text.splitlines() if l.startswith("Pss:")).split()[1]) / 1024, 1)
        return result

    def stop(self):
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(20)
        return code, time.monotonic() - start


def ours(text):
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = {}
    for key, (family, label, scale) in SMI.items():
        line = next((line for line in lines if line.startswith(family) and label in line), None)
        found[key] = float(line.rsplit(" ", 1)[1]) * scale if line else None
    return found


def theirs():
    output = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(SMI)}", "--format=csv,noheader,nounits"],
                            capture_output=True, text=True, check=True).stdout
    values = output.splitlines()[0].split(", ")
    return {key: float(value) if value.replace(".", "").isdigit() else None for key, value in zip(SMI, values, strict=True)}


def phase(agent, label, seconds, out, timeline, compare):
    timeline.write(json.dumps({"label": label, "monotonic": time.monotonic(), "unix": time.time()}) + "\n")
    timeline.flush()
    load = None
    if label != "idle":
        load = subprocess.Popen([sys.executable, str(ROOT / "tests/hardware/loads.py"), label, str(seconds)],
                                stdout=subprocess.PIPE, text=True)
    end = time.monotonic() + seconds
    cpu, start, latencies, rows = agent.cpu(), time.monotonic(), [], []
    time.sleep(min(8, seconds / 3))
    while time.monotonic() < end:
        before = time.perf_counter()
        text = agent.get("/metrics")
        latencies.append(time.perf_counter() - before)
        row = {"label": label, "t": time.time(), "ours": ours(text or ""), "theirs": theirs()}
        compare.write(json.dumps(row) + "\n")
        compare.flush()
        rows.append(row)
        time.sleep(max(0, min(5, end - time.monotonic())))
    cpu = (agent.cpu() - cpu) / (time.monotonic() - start) * 100
    rate = load.communicate()[0].strip() if load else ""
    line = f"{label:28s} {seconds:5.0f} s  cpu {cpu:5.2f} %  scrape p50 {statistics.median(latencies) * 1e3:5.2f} ms  rate {rate}"
    for key in SMI:
        pairs = [(row["ours"][key], row["theirs"][key]) for row in rows]
        pairs = [(a, b) for a, b in pairs if a is not None and b is not None]
        if pairs:
            line += f"\n    {key:20s} ours {statistics.mean(a for a, _ in pairs):10.2f}  nvidia-smi {statistics.mean(b for _, b in pairs):10.2f}  max difference {max(abs(a - b) for a, b in pairs):8.2f}  n {len(pairs)}"
        else:
            line += f"\n    {key:20s} no pairs"
    say(out, line)
    say(out, f"    memory PSS MiB {agent.memory()}")


def say(out, line):
    print(line, flush=True)
    with (out / "summary.txt").open("a") as file:
        file.write(line + "\n")


def turns(out, seconds):
    rates = {"on": [], "off": []}
    for turn in range(8):
        kind = "off" if turn % 2 else "on"
        agent = Agent(out, "") if kind == "on" else None
        rate = subprocess.run([sys.executable, str(ROOT / "tests/hardware/loads.py"), "compute_bf16_matmul", str(seconds)],
                              capture_output=True, text=True, check=True).stdout
        rates[kind].append(float(rate))
        if agent:
            agent.stop()
    on, off = statistics.mean(rates["on"]), statistics.mean(rates["off"])
    say(out, f"matmul/s with agent {rates['on']}, without {rates['off']}: difference {100 * (on / off - 1):+.3f} %, "
             f"spread without {100 * (max(rates['off']) / min(rates['off']) - 1):.3f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--record", default="recording.jsonl.gz")
    parser.add_argument("plan", nargs="+", help="LABEL:SECONDS")
    arguments = parser.parse_args()
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    plan = [(item.split(":")[0], float(item.split(":")[1])) for item in arguments.plan]
    phases = [item for item in plan if item[0] != "ab"]
    if phases:
        agent = Agent(out, arguments.record)
        say(out, f"ready after {agent.ready_after:.2f} s")
        try:
            with (out / "timeline.jsonl").open("a") as timeline, (out / "compare.jsonl").open("a") as compare:
                for label, seconds in phases:
                    phase(agent, label, seconds, out, timeline, compare)
            (out / "metrics.txt").write_text(agent.get("/metrics") or "")
            (out / "health.json").write_text(agent.get("/health") or "")
        finally:
            say(out, f"stopped: exit code and seconds {agent.stop()}")
            if agent.record and agent.record.exists():
                (out / arguments.record).write_bytes(agent.record.read_bytes())
    for label, seconds in plan:
        if label == "ab":
            turns(out, seconds)


if __name__ == "__main__":
    main()
