"""Runs the agent on a real GPU under a list of loads and compares what it says with nvidia-smi in the same moment.

    python tests/hardware/session.py --out DIR idle:60 compute_bf16_matmul:300 cool:300 memory_copy:90 ab:12

Read-only: nothing of the GPU is ever set. As root, the agent runs as an unprivileged user. `idle`, `cool` and any other
`cool...` or `idle...` put no load on; `ab:N` starts and stops the agent in turns of N seconds under a bf16 matmul.
All results are written as they come: `compare.jsonl`, `timeline.jsonl`, `phases.jsonl`, `recording.jsonl.gz`,
`summary.txt`. `--dry` tries all of it without a GPU: a simulated GPU, a sleep for a load, a stand-in for nvidia-smi.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import ab
import compare
import loads
from measured_agent import Agent, workplace

HERE = Path(__file__).parent
BURST = 200
"""Scrapes in a row at the end: nine in a phase make no percentile."""
SETTLE = 8
"""Seconds after a change of load before the first comparison: averages need that long to mean the load alone."""


def quiet(label):
    """Whether a label means no load."""
    return label.startswith(("idle", "cool"))


def parse(plan):
    """Return [(label, seconds)]; exits with the reason for what is no plan."""
    steps = []
    for item in plan:
        label, _, seconds = item.partition(":")
        if not (quiet(label) or label == "ab" or label in loads.NAMES):
            raise SystemExit(f"{item}: no such load; there are idle, cool, ab, {', '.join(loads.NAMES)}")
        if not 0 < (compare.number(seconds) or 0) < 86400:  # NaN is in no range
            raise SystemExit(f"{item}: give seconds, as in {label}:60")
        steps.append((label, float(seconds)))
    return steps


class Session:
    """One agent through all phases."""

    def __init__(self, out, work, options):
        self.out = out
        self.every = options.every
        self.smi = (sys.executable, str(HERE / "fake_nvidia_smi.py"), *compare.SMI[1:]) if options.dry else compare.SMI
        self.load_script = HERE / ("fake_load.py" if options.dry else "loads.py")
        self.agent = Agent(work, out / "agent.log", options.port, record="recording.jsonl.gz", dry=options.dry)
        self.load = None
        self.say(f"ready after {self.agent.ready_after:.2f} s")

    def say(self, line):
        print(line, flush=True)
        with (self.out / "summary.txt").open("a") as file:
            file.write(line + "\n")

    def append(self, name, row):
        with (self.out / name).open("a") as file:
            file.write(json.dumps(row) + "\n")

    def mark(self, label):
        self.append("timeline.jsonl", {"label": label, "monotonic": time.monotonic(), "unix": time.time()})

    def phase(self, label, seconds):
        """Run one phase and say what came of it. A load that fails is said, and the next phase follows."""
        if not quiet(label):
            self.mark("between")
            if not self.start_load(label, seconds):
                return
        self.mark(label)
        start, cpu = time.monotonic(), self.agent.cpu()
        rows, latencies = self.sample(label, start, start + seconds)
        elapsed = time.monotonic() - start
        used = {role: (now - cpu.get(role, 0.0)) / elapsed * 100 for role, now in self.agent.cpu().items()}
        rate = self.end_load()
        result = {
            "label": label,
            "seconds": round(elapsed, 1),
            "cpu_percent": {role: round(share, 3) for role, share in used.items()},
            "pss_mib": self.agent.memory(),
            "scrape_ms_most": round(max(latencies, default=0) * 1e3, 2),
            "rate": rate,
            "differences": compare.differences(rows),
        }
        self.append("phases.jsonl", result)
        for line in table(result):
            self.say(line)

    def sample(self, label, start, end):
        """Compare every so many seconds until `end`; returns (rows, seconds that scrapes took)."""
        rows, latencies = [], []
        at = start + min(SETTLE, (end - start) / 3)
        while at < end:
            time.sleep(max(0.0, at - time.monotonic()))
            text, seconds = self.agent.scrape()
            row = {
                "label": label,
                "t": time.time(),
                "ours": compare.ours(text or ""),
                "theirs": compare.theirs(self.smi),
            }
            self.append("compare.jsonl", row)
            self.save_recording()
            rows.append(row)
            a, b = (
                [side[name] for name in ("temperature.gpu", "power.draw.average")]
                for side in (row["ours"], row["theirs"])
            )
            print(f"  {label} {time.monotonic() - start:.0f} s: degrees and watts ours {a}, nvidia-smi {b}", flush=True)
            if text is None:
                self.say(f"    no answer from /metrics after {seconds:.1f} s")
            else:
                latencies.append(seconds)
            at = max(at + self.every, time.monotonic())
        time.sleep(max(0.0, end - time.monotonic()))
        return rows, latencies

    def start_load(self, label, seconds):
        """Start a load and wait until it runs."""
        command = [sys.executable, str(self.load_script), label, str(seconds)]
        with (self.out / "loads.log").open("a") as log:
            self.load = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        if self.load.stdout.readline().strip() == "ready":
            return True
        self.say(f"{label:28s} did not start: see loads.log")
        self.end_load()
        return False

    def end_load(self, patience=30):
        """Wait for the load, end it if it does not; returns the rate it printed."""
        if self.load is None:
            return ""
        try:
            rate = self.load.communicate(timeout=patience)[0].strip().replace("\n", " ")
        except subprocess.TimeoutExpired:
            os.killpg(self.load.pid, signal.SIGKILL)
            rate = "had to be killed"
        if self.load.returncode and not rate:
            rate = f"failed with {self.load.returncode}: see loads.log"
        self.load = None
        return rate

    def save_recording(self):
        """Copy what is recorded so far: a run that is cut off keeps it."""
        for part in self.agent.recording.parent.glob(self.agent.recording.name + "*"):
            shutil.copyfile(part, self.out / part.name)

    def burst(self):
        """Measure scrapes in a row."""
        spent = sorted(seconds for text, seconds in (self.agent.scrape() for _ in range(BURST)) if text)
        if spent:
            p50, p99 = spent[len(spent) // 2], spent[len(spent) * 99 // 100]
            self.say(
                f"{len(spent)} scrapes: p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms, most {spent[-1] * 1e3:.2f} ms"
            )

    def close(self):
        """Stop the agent, say how that went, and keep its last pages and the recording."""
        if self.load is not None:
            os.killpg(self.load.pid, signal.SIGKILL)
            self.end_load()
        self.mark("end")
        for name, path in (("metrics.txt", "/metrics"), ("health.json", "/health")):
            (self.out / name).write_text(self.agent.get(path) or "")
        code, freed, ended = self.agent.stop()
        free = "NEVER" if freed is None else f"after {freed:.2f} s"
        self.say(f"stopped by SIGTERM: exit code {code}, port free {free}, ended after {ended:.2f} s")
        self.save_recording()


def table(result):
    """Return a phase's lines for people."""
    cpu, pss = result["cpu_percent"], result["pss_mib"]
    of = {
        kind: sum(v for role, v in values.items() if role != "simulator")
        for kind, values in (("cpu", cpu), ("pss", pss))
    }
    parts = ", ".join(f"{role} {share:.2f}" for role, share in sorted(cpu.items()))
    phase = (
        f"{result['label']:28s} {result['seconds']:6.1f} s  cpu {of['cpu']:5.2f} % ({parts})  pss {of['pss']:.1f} MiB"
    )
    lines = [f"{phase}  scrape at most {result['scrape_ms_most']:.2f} ms  rate {result['rate']}"]
    for name, (n, a, b, mean, most) in result["differences"].items():
        lines.append(
            f"    {name:20s} ours {a:10.2f}  nvidia-smi {b:10.2f}  difference mean {mean:8.2f} most {most:8.2f}  n {n}"
        )
    missing = [name for name in compare.QUANTITIES if name not in result["differences"]]
    return [*lines, f"    not compared: {', '.join(missing)}"] if missing else lines


def conclude(out):
    """Return one line a phase: CPU, memory and the greatest difference of each quantity."""
    names = list(compare.QUANTITIES)
    lines = ["greatest difference to nvidia-smi, by phase; CPU % and PSS MiB of all processes of the agent"]
    lines.append(
        f"{'phase':26s}{'cpu':>7s}{'pss':>7s}" + "".join(f"{name.replace('temperature', 't'):>20s}" for name in names)
    )
    path = out / "phases.jsonl"
    for row in map(json.loads, path.read_text().splitlines() if path.exists() else ()):
        sums = [sum(v for role, v in row[key].items() if role != "simulator") for key in ("cpu_percent", "pss_mib")]
        cells = (
            f"{row['differences'][name][4]:20.2f}" if name in row["differences"] else f"{'-':>20s}" for name in names
        )
        lines.append(f"{row['label']:26s}{sums[0]:7.2f}{sums[1]:7.1f}" + "".join(cells))
    return lines


def run(options, out, work, steps):
    """Run all phases; whatever ends it, the agent is stopped and what was found is said."""
    phases = [step for step in steps if step[0] != "ab"]
    if phases:
        session = Session(out, work, options)
        try:
            for label, seconds in phases:
                session.phase(label, seconds)
            session.burst()
        finally:
            session.close()
            for line in conclude(out):
                session.say(line)
    for label, seconds in steps:
        if label == "ab":
            lines = ab.run(work, out / "agent.log", options.port, seconds, dry=options.dry)
            with (out / "summary.txt").open("a") as file:
                file.writelines(line + "\n" for line in lines)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=os.environ.get("OUT"), help="where results go (default $OUT)")
    parser.add_argument("--every", type=float, default=10, help="seconds between comparisons")
    parser.add_argument("--port", type=int, default=10980)
    parser.add_argument("--wheels", type=Path, help="directory of wheels to unpack for the agent")
    parser.add_argument("--dry", action="store_true", help="without a GPU: try the session itself")
    parser.add_argument("plan", nargs="+", metavar="LABEL:SECONDS")
    options = parser.parse_args(arguments)
    if options.out is None:
        parser.error("give --out DIR or set OUT")
    steps = parse(options.plan)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    # A time limit ends this by SIGTERM: let `finally` stop the agent and say what there is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = workplace(options.wheels)
    try:
        run(options, out, work, steps)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
