"""`run`, `collect` and `replay`: commands that sample in a process of their own."""

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from coldaisle.app.options import AbsentReading, Collected, RunOptions
from coldaisle.app.plain import plain
from coldaisle.cli.node_table import absent_table, node_table, wants_colour
from coldaisle.config.loader import load
from coldaisle.domain.errors import ColdaisleError
from coldaisle.domain.health import State


def options_from(parsed: Namespace) -> RunOptions:
    """Return the options of a command line; raises ConfigError for a wrong file or flag."""
    given = vars(parsed)
    flags: dict[str, Any] = {
        key: given[name]
        for key, name in (
            ("mode", "mode"),
            ("web.listen_addresses", "listen_addresses"),
            ("log.level", "log_level"),
            ("log.format", "log_format"),
        )
        if given.get(name) is not None
    }
    if web_config := given.get("web_config_file"):
        # Relative to where the command was typed, as shells' completion has it.
        flags["web.config_file"] = web_config.absolute()
    config = load(parsed.config, flags)
    return RunOptions(
        config=config,
        config_path=parsed.config.absolute() if parsed.config else None,
        flags=flags,
        simulate=given.get("simulate"),
        gpus=given.get("gpus"),
        scenario=_readable(given.get("scenario")),
        seed=given.get("seed") or 0,
        replay=_readable(given.get("replay")),
        record=given["record"].absolute() if given.get("record") else None,
        web_config_file=config.web.config_file,
    )


def _readable(path: Path | None) -> Path | None:
    if path is None:
        return None
    try:
        path.open("rb").close()
    except IsADirectoryError:
        raise ColdaisleError(f"{path}: is a directory", remedy="give the file in it") from None
    return path.absolute()


def run(parsed: Namespace) -> int:
    """Run the agent until it is told to stop."""
    options = options_from(parsed)
    from coldaisle.app import main as app  # noqa: PLC0415  a wrong configuration is reported before this takes its time

    return int(app.run(options))


def collect(parsed: Namespace) -> int:
    """Sample once and print it; 1 if no GPU source works."""
    options = options_from(parsed)
    from coldaisle.app import once  # noqa: PLC0415  likewise

    return show(once.collect(options), parsed.format, explain=parsed.explain)


def replay(parsed: Namespace) -> int:
    """Print what a recording gives."""
    return collect(parsed)


def show(collected: Collected, wanted: str | None, *, explain: bool) -> int:
    """Print a sample as `wanted` (None: by what standard output is); return the exit code."""
    chosen = wanted or ("table" if sys.stdout.isatty() else "text")
    node, absent = plain(collected.node), plain(collected.absent)
    if chosen == "table":
        sys.stdout.write(node_table(node, colour=wants_colour(sys.stdout)))
        if explain:
            sys.stdout.write("\n" + absent_table(absent))
    elif chosen == "json":
        answer = {"node": node, "health": plain(collected.health)} | ({"absent": absent} if explain else {})
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
    else:
        exposition = collected.text if chosen == "text" else collected.openmetrics
        # OpenMetrics ends in "# EOF" and allows no free comment; there the explanation goes beside the answer.
        where = sys.stdout if chosen == "text" else sys.stderr
        sys.stdout.write(exposition.decode())
        if explain:
            where.writelines(f"# absent: {_sentence(reading)}\n" for reading in collected.absent)
    return 1 if collected.health.state is State.FAILED else 0


def _sentence(reading: AbsentReading) -> str:
    detail = f" ({reading.detail})" if reading.detail else ""
    return f"{reading.quantity} of GPU {reading.gpu}: {reading.reason}{detail}"
