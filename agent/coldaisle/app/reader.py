"""Entry of the reader: `python -m coldaisle.app.reader --fd N --kmsg PATH --state-dir DIR`, started by main only."""

import json
import signal
import socket
import sys
from typing import Any

from coldaisle.reader.kmsg import open_source
from coldaisle.reader.loop import ReaderLoop
from coldaisle.reader.positions import PositionFile

USAGE = "usage: python -m coldaisle.app.reader --fd N --kmsg PATH --state-dir DIR [--resume JSON]"


def parse(arguments: list[str]) -> dict[str, str] | None:
    """Return the options, None if they are not as `USAGE` says. By hand: argparse costs this process 1.5 MiB."""
    options = dict(zip(arguments[::2], arguments[1::2], strict=False))
    required = {"--fd", "--kmsg", "--state-dir"}
    if len(arguments) % 2 or not required <= options.keys() <= required | {"--resume"} or not options["--fd"].isdigit():
        return None
    return options


def main(arguments: list[str]) -> int:
    """Run the reader; 0 when told to stop, 2 on wrong usage."""
    options = parse(arguments)
    if options is None:
        sys.stderr.write(USAGE + "\n")
        return 2
    channel = socket.socket(fileno=int(options["--fd"]))
    source = open_source(options["--kmsg"])
    loop = ReaderLoop(source, channel, PositionFile(options["--state-dir"], source.name))
    signal.signal(signal.SIGTERM, lambda *_: loop.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loop.run(_position(options.get("--resume", "")))
    return 0


def _position(text: str) -> dict[str, Any] | None:
    try:
        position = json.loads(text)
    except ValueError:
        return None
    return position if isinstance(position, dict) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
