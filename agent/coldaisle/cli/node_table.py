"""The node as tables of text, from the JSON form of `NodeView`: `collect` and `status` show the same."""

import os
from collections.abc import Sequence
from typing import Any, TextIO

from coldaisle.cli import units

_COLOURS = {"ok": 32, "degraded": 33, "late": 33, "starting": 36, "off": 90}
_RED = 31


def wants_colour(stream: TextIO) -> bool:
    """Colour is for terminals, and not for people who set NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _paint(state: str, *, colour: bool) -> str:
    return f"\x1b[{_COLOURS.get(state, _RED)}m{state}\x1b[0m" if colour else state


def align(rows: Sequence[Sequence[str]], left: frozenset[int] = frozenset({0})) -> list[str]:
    """Return rows as lines of equal columns; columns in `left` are left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def node_table(node: dict[str, Any], *, colour: bool = False) -> str:
    """Return the whole node: what it is, its GPUs, its filesystems, and what is not well."""
    blocks = ["\n".join(_head(node, colour=colour)), "\n".join(_gpu_lines(node, colour=colour))]
    if node["filesystems"]:
        blocks.append("\n".join(_filesystem_lines(node["filesystems"])))
    if problems := _problem_lines(node, colour=colour):
        blocks.append("\n".join(problems))
    return "\n\n".join(blocks) + "\n"


def _head(node: dict[str, Any], *, colour: bool) -> list[str]:
    parts = [node["hostname"], node["product"]]
    if node["driver_version"]:
        parts.append(f"driver {node['driver_version']}")
    if node["cuda_version"]:
        parts.append(f"CUDA {node['cuda_version']}")
    parts += [node["mode"], "released" if node["released"] else "", _paint(node["state"], colour=colour)]
    lines = ["  ".join(part for part in parts if part)]
    if node["simulated"]:
        lines.insert(0, "SIMULATED OR REPLAYED: none of these GPUs is in this machine")
    return lines


def _gpu_lines(node: dict[str, Any], *, colour: bool) -> list[str]:
    gpus = node["gpus"]
    expected = node["expected_gpus"]
    count = f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'}" + (
        f" of {expected} expected" if expected not in (None, len(gpus)) else ""
    )
    if not gpus:
        return [count]
    rows = [
        ["GPU", "name", "core", "memory", "power", "limit", "busy", "SM", "tensor", "DRAM", "clock", "used", "state"]
    ]
    states = []
    for gpu in gpus:
        identity = gpu["identity"]
        used = units.share(gpu["memory_used"], gpu["memory_total"], units.size(gpu["memory_used"]))
        states.append(" ".join([_paint(gpu["state"], colour=colour), *gpu["reasons"]]))
        rows.append(
            [
                str(identity["index"]),
                identity["name"] or units.ABSENT,
                units.number(gpu["temperature"], "°C"),
                units.number(gpu["memory_temperature"], "°C"),
                units.number(gpu["power"], "W"),
                units.number(gpu["power_limit"], "W"),
                units.percent(gpu["utilization"]),
                units.percent(gpu["sm_active"]),
                units.percent(gpu["tensor_active"]),
                units.percent(gpu["dram_active"]),
                units.frequency(gpu["sm_clock"]),
                used,
                # Put in below: colour codes have no width.
                "",
            ]
        )
    header, *lines = align(rows, frozenset({0, 1, 12}))
    width = max(map(len, lines))
    header = f"{header.removesuffix('state').rstrip():{width}}  state"
    return [count, header, *(f"{line:{width}}  {state}" for line, state in zip(lines, states, strict=True))]


def _filesystem_lines(filesystems: Sequence[dict[str, Any]]) -> list[str]:
    rows = [["mounted on", "type", "size", "available", ""]]
    for filesystem in filesystems:
        available = units.share(filesystem["available"], filesystem["size"], units.size(filesystem["available"]))
        note = "; ".join(filter(None, ["read-only" if filesystem["read_only"] else "", filesystem["problem"]]))
        rows.append([filesystem["mountpoint"], filesystem["type"], units.size(filesystem["size"]), available, note])
    return align(rows, frozenset({0, 1, 4}))


def _problem_lines(node: dict[str, Any], *, colour: bool) -> list[str]:
    found = [
        (f"GPU {gpu['identity']['index']}", gpu["state"], gpu["reason"], "") for gpu in node["gpus"] if gpu["reason"]
    ]
    found += [
        (source["name"], source["state"], source["reason"], source["action"])
        for source in node["sources"]
        if source["state"] not in ("ok", "off")
    ]
    lines = []
    for name, state, reason, action in found:
        lines.append(f"{name}: {_paint(state, colour=colour)}" + (f": {reason}" if reason else ""))
        if action:
            lines.append(f"  try: {action}")
    return lines


def absent_table(absent: Sequence[dict[str, Any]]) -> str:
    """Return what is absent and why, one line each."""
    if not absent:
        return "nothing is absent\n"
    rows = [["GPU", "absent", "why", "detail"]]
    rows += [[reading["gpu"], reading["quantity"], reading["reason"], reading["detail"]] for reading in absent]
    return "\n".join(align(rows, frozenset({0, 1, 2, 3}))) + "\n"
