"""Entry of the simulator: `python -m coldaisle.app.simulator --dir DIR --profile dgx-h200`; started by `run`.

Prints `ready` once its files exist. Ends on SIGTERM and when its parent is gone: its stdin ends, or the kernel says so.
"""

import argparse
import ctypes
import os
import signal
import stat
import sys
import time
from pathlib import Path

from coldaisle.domain.errors import ColdaisleError, ConfigError
from coldaisle.simulation.machine import KMSG, Writer
from coldaisle.simulation.node import Node
from coldaisle.simulation.profiles import BY_NAME, PROFILES
from coldaisle.simulation.server import Server

_PR_SET_PDEATHSIG = 1
MOST_GPUS = 16


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="coldaisle.app.simulator", description="A simulated DGX.")
    parser.add_argument("--dir", required=True, help="directory for its memory, control socket and kernel log")
    parser.add_argument("--profile", required=True, choices=sorted(BY_NAME))
    parser.add_argument("--gpus", type=int, default=8, choices=range(1, MOST_GPUS + 1), metavar=f"1..{MOST_GPUS}")
    parser.add_argument("--scenario", type=Path, help="loads and faults over time")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _serve(arguments: argparse.Namespace) -> None:
    profile = BY_NAME[arguments.profile]
    directory = Path(arguments.dir)
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    scenario = None
    if arguments.scenario is not None:
        from coldaisle.simulation.scenario import load_scenario  # noqa: PLC0415  ruamel costs 5 MiB

        scenario = load_scenario(arguments.scenario, arguments.gpus)
    writer = Writer(str(directory), arguments.gpus, PROFILES.index(profile))
    with (directory / KMSG).open("w", encoding="ascii", errors="replace") as kmsg:
        node = Node(profile, arguments.gpus, arguments.seed, writer, kmsg, time.monotonic)
        server = Server(node, str(directory), time.monotonic)
        if scenario is not None:
            from coldaisle.simulation.scenario import Player  # noqa: PLC0415  as above

            node.script = Player(scenario, node).play
        _end_with_parent(server)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        try:
            server.run()
        finally:
            server.close()


def _end_with_parent(server: Server) -> None:
    def end(*_: object) -> None:
        server.running = False

    def stdin_ready() -> None:
        if not os.read(0, 4096):
            end()

    signal.signal(signal.SIGTERM, end)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    mode = os.fstat(0).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        server.watch(0, stdin_ready)
        # Control-C at a terminal reaches the whole group; the machine must outlive those who still read it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGINT, end)


def main() -> int:
    """Run until told to end; returns the exit code."""
    arguments = _arguments()
    try:
        _serve(arguments)
    except ConfigError as error:
        for problem in error.problems:
            sys.stderr.write(f"coldaisle: error: {problem}\n")
        return 3
    except (ColdaisleError, OSError) as error:
        sys.stderr.write(f"coldaisle: error: the simulator cannot start in {arguments.dir}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
