"""Does the agent slow a GPU down? One bf16 matmul loop; the agent runs and does not run in turns.

    python tests/hardware/ab.py [--turns 4] [--seconds 12] [--wheels DIR] [--dry]

The loop is one process throughout, so that both sides see the same clocks, heat and memory; each side's rate is counted
from the first to the last finished iteration of its window.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from measured_agent import Agent, workplace

HERE = Path(__file__).parent
SETTLE = 1.0
"""Seconds after a start or stop of the agent that count for neither side."""
LOAD = "compute_bf16_matmul"


class Counter:
    """The load and how far it has come. Exits the program if the load does not start."""

    def __init__(self, log, seconds, *, dry):
        script = HERE / ("fake_load.py" if dry else "loads.py")
        with Path(log).open("a") as file:
            self._process = subprocess.Popen(
                [sys.executable, str(script), LOAD, str(seconds), "--report"],
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        if self._process.stdout.readline().strip() != "ready":
            raise SystemExit(f"the load did not start:\n{Path(log).read_text()[-2000:]}")
        self._points = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            at, _, count = line.partition(" ")
            if count:
                self._points.append((float(at), int(count)))

    def rate(self, start, end):
        """Return iterations per second between two monotonic times."""
        return rate_of([point for point in self._points if start <= point[0] <= end])

    def close(self):
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(20)
        self._reader.join(5)


def rate_of(points):
    """Return iterations per second from (time, count) points; exits if there are too few to say."""
    if len(points) < 2 or points[-1][0] == points[0][0]:
        raise SystemExit("the load made no progress in a window: take longer turns")
    return (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])


def window(counter, seconds):
    start = time.monotonic() + SETTLE
    time.sleep(seconds + SETTLE)
    return counter.rate(start, start + seconds)


def conclusion(on, off):
    """Return lines for people: means, spreads, difference."""

    def spread(rates):
        return 100 * (max(rates) - min(rates)) / statistics.mean(rates)

    difference = 100 * (statistics.mean(on) / statistics.mean(off) - 1)
    verdict = "within" if abs(difference) <= spread(off) else "BEYOND"
    return [
        f"{LOAD} with the agent    {statistics.mean(on):10.3f}/s  spread {spread(on):.3f} %  {[round(r, 3) for r in on]}",
        f"{LOAD} without           {statistics.mean(off):10.3f}/s  spread {spread(off):.3f} %  {[round(r, 3) for r in off]}",
        f"difference {difference:+.3f} %: {verdict} the spread without",
    ]


def run(work, log, port, seconds, turns=4, *, dry=False):
    """Run the turns and return the conclusion's lines; each turn is printed as it ends."""
    on, off = [], []
    # Starting and stopping take up to a few seconds a turn; the load is ended when the turns are.
    counter = Counter(log, 2 * turns * (seconds + 60) + 60, dry=dry)
    agent = None
    try:
        for turn in range(turns):
            agent = Agent(work, log, port, dry=dry)
            on.append(window(counter, seconds))
            agent.stop()
            agent = None
            off.append(window(counter, seconds))
            print(f"turn {turn + 1}: with {on[-1]:.3f}/s, without {off[-1]:.3f}/s", flush=True)
    finally:
        if agent is not None:
            agent.stop()
        counter.close()
    lines = conclusion(on, off)
    print("\n".join(lines), flush=True)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=12, help="of each side of a turn")
    parser.add_argument("--port", type=int, default=10980)
    parser.add_argument("--wheels", type=Path, help="directory of wheels to unpack for the agent")
    parser.add_argument("--out", type=Path, default=os.environ.get("OUT"), help="for ab.txt (default $OUT)")
    parser.add_argument("--dry", action="store_true", help="without a GPU")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = workplace(options.wheels)
    lines = run(work, work / "ab.log", options.port, options.seconds, options.turns, dry=options.dry)
    if options.out:
        Path(options.out).mkdir(parents=True, exist_ok=True)
        (Path(options.out) / "ab.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
