"""What can be typed. Imports nothing that takes time: `coldaisle --help` must be instant."""

import argparse
import sys
from pathlib import Path
from typing import NoReturn

import durationpy

from coldaisle import __version__

USAGE = 2
"""Exit code of a command line that makes no sense."""

# Kept here as well as in app.options, whose import takes pydantic's 100 ms; a test holds them equal.
SIMULATED_PRODUCTS = ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200")
FORMATS = ("text", "openmetrics", "json", "table")


class Parser(argparse.ArgumentParser):
    """argparse with the errors of this program: one line, beginning `coldaisle: error:`."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is, and exit 2."""
        sys.stderr.write(f"coldaisle: error: {message}; see `{self.prog} --help`\n")
        raise SystemExit(USAGE)


def _duration(text: str) -> float:
    try:
        seconds = float(durationpy.from_str(text).total_seconds())
    except (durationpy.DurationError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f'"{text}" is no duration, write for example 60s or 5m') from error
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f'"{text}" is no time at all')
    return seconds


def _gpu_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 64):
        raise argparse.ArgumentTypeError(f'"{text}" is no number from 1 to 64')
    return int(text)


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration file (docs/configuration.md)")


def _add_vendor(parser: argparse.ArgumentParser, *, replay: bool = True) -> None:
    group = parser.add_argument_group("where GPU numbers come from (default: the driver of this machine)")
    source = group.add_mutually_exclusive_group()
    source.add_argument("--simulate", choices=SIMULATED_PRODUCTS, help="a simulated machine; every page says so")
    if replay:
        source.add_argument("--replay", type=Path, metavar="FILE", help="answers recorded before")
    group.add_argument("--gpus", type=_gpu_count, metavar="N", help="simulate so many GPUs (default 8)")
    group.add_argument("--scenario", type=Path, metavar="FILE", help="faults of the simulated machine over time")
    group.add_argument("--seed", type=int, metavar="N", help="seed of the simulation (default 0)")
    group.add_argument("--record", type=Path, metavar="FILE", help="write every vendor answer to FILE")


def _add_control(parser: argparse.ArgumentParser) -> None:
    _add_config(parser)
    parser.add_argument("--socket", type=Path, metavar="PATH", help="the agent's control socket")


def _add_run(commands: "argparse._SubParsersAction[Parser]") -> None:
    run = commands.add_parser("run", help="run the agent", allow_abbrev=False)
    _add_config(run)
    _add_vendor(run)
    group = run.add_argument_group("over the configuration file")
    group.add_argument("--mode", choices=("observe", "advise", "enforce"), help="what the agent may do about heat")
    group.add_argument(
        "--web.listen-address",
        dest="listen_addresses",
        action="append",
        metavar="ADDRESS",
        help="where to serve HTTP, as :10980; repeat for more",
    )
    group.add_argument("--web.config.file", dest="web_config_file", type=Path, metavar="FILE", help="TLS and users")
    group.add_argument(
        "--log.level", dest="log_level", choices=("debug", "info", "warning", "error"), help="from which"
    )
    group.add_argument("--log.format", dest="log_format", choices=("auto", "console", "json", "journal"), help="how")


def _add_once(commands: "argparse._SubParsersAction[Parser]") -> None:
    collect = commands.add_parser("collect", help="sample once and print it", allow_abbrev=False)
    _add_config(collect)
    _add_vendor(collect)
    replay = commands.add_parser("replay", help="print what a recording gives", allow_abbrev=False)
    replay.add_argument("replay", type=Path, metavar="FILE", help="a recording")
    _add_config(replay)
    for parser in (collect, replay):
        parser.add_argument("--format", choices=FORMATS, help="default: table on a terminal, text in a pipe")
        parser.add_argument("--explain", action="store_true", help="also say what is absent, and why")


def _add_check(commands: "argparse._SubParsersAction[Parser]") -> None:
    check = commands.add_parser("check-config", help="check a configuration file", allow_abbrev=False)
    check.add_argument("config", type=Path, metavar="FILE")
    check.add_argument("--web.config.file", dest="web_config_file", type=Path, metavar="FILE", help="check this too")


def build() -> Parser:
    """Return the parser of the whole command line."""
    parser = Parser(
        prog="coldaisle",
        description="The node agent of a DGX: samples GPUs, disks and jobs, and says what is wrong.",
        epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 configuration, 4 address in use, 5 no agent, 6 not permitted.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"coldaisle {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    _add_run(commands)
    _add_once(commands)
    _add_check(commands)
    for name, purpose in (
        ("release", "close every vendor handle, for a driver upgrade or GPU reset"),
        ("resume", "take up again after release"),
    ):
        _add_control(commands.add_parser(name, help=purpose, allow_abbrev=False))
    status = commands.add_parser("status", help="how the running agent and its GPUs are", allow_abbrev=False)
    _add_control(status)
    status.add_argument("--format", choices=("table", "json"), default="table")
    record = commands.add_parser("record", help="have the running agent record vendor answers", allow_abbrev=False)
    _add_control(record)
    record.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="where the agent writes")
    record.add_argument("--duration", type=_duration, default=60.0, metavar="TIME", help="default 60s")
    return parser


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Parse a command line; exits 2 with one line if it makes no sense."""
    parser = build()
    arguments = parser.parse_args(argv)
    if arguments.command in ("run", "collect") and arguments.simulate is None:
        for name in ("gpus", "scenario", "seed"):
            if getattr(arguments, name) is not None:
                parser.error(f"--{name} is about a simulated machine: add --simulate dgx-h200")
    return arguments
