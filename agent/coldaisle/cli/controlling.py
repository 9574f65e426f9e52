"""`release`, `resume`, `status` and `record`: commands that ask the running agent."""

import json
import sys
from argparse import Namespace
from typing import Any

from coldaisle.app.control_client import ControlClient, find_socket
from coldaisle.cli.node_table import node_table, wants_colour

# A child stuck in a vendor call gets SIGTERM, ten seconds, then SIGKILL; with that release is still answered in time.
_RELEASE_SECONDS = 60.0


def _ask(parsed: Namespace, op: str, timeout: float = 30.0, **fields: Any) -> dict[str, Any]:
    path = parsed.socket
    if path is None:
        runtime = None
        if parsed.config is not None:
            from coldaisle.config.loader import load  # noqa: PLC0415  takes pydantic's 100 ms, needed only with --config

            runtime = load(parsed.config).paths.runtime
        path = find_socket(runtime)
    return ControlClient(path, timeout).request(op, **fields)


def _say(answer: dict[str, Any], default: str) -> int:
    sys.stdout.write(f"{answer.get('message') or default}\n")
    return 0


def release(parsed: Namespace) -> int:
    """Have the agent close every vendor handle."""
    return _say(_ask(parsed, "release", _RELEASE_SECONDS), "released: the agent holds no vendor handle")


def resume(parsed: Namespace) -> int:
    """Have the agent open the vendor libraries again."""
    return _say(_ask(parsed, "resume"), "resumed")


def record(parsed: Namespace) -> int:
    """Have the agent write vendor answers to a file; returns when it is complete."""
    path = parsed.output.absolute()
    answer = _ask(parsed, "record", parsed.duration + 30, path=str(path), duration=parsed.duration)
    return _say(answer, f"recorded {parsed.duration:g} s to {path}")


def status(parsed: Namespace) -> int:
    """Print how the agent and its GPUs are; 1 if the node has failed."""
    answer = _ask(parsed, "status")
    node = answer.get("node")
    if parsed.format == "json" or not isinstance(node, dict):
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
    else:
        sys.stdout.write(node_table(node, colour=wants_colour(sys.stdout)))
    return 1 if isinstance(node, dict) and node.get("state") == "failed" else 0
