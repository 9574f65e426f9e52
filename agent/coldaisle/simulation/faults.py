"""The faults: what each is called, what it takes, what it does to the machine and how it is undone.

What each answers follows what operators and vendors report of the real ones (NVML return codes, Xids, reasons).
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from coldaisle.simulation.board import SENSORS, Board
from coldaisle.simulation.machine import GLITCH_READS


class Machine(Protocol):
    """What faults need of the node."""

    boards: list[Board]
    init_error: int
    init_hang: bool
    hang: bool
    session_error: int
    inlet_target: float | None
    inlet_rate: float

    def xid(self, board: Board, number: int, text: str) -> None:
        """Log an Xid and tell subscribers."""

    def log(self, text: str, priority: int = 3) -> None:
        """Write one kernel message."""


class Kind(NamedTuple):
    """One kind of fault. `scope`: "gpu" needs a GPU, "any" takes one or hits all, "node" takes none."""

    scope: str
    defaults: dict[str, float | str]
    start: Callable[[Machine, Board | None, dict[str, Any]], None]
    stop: Callable[[Machine, Board | None], None]
    seconds: float | None = None
    """How long it lasts if nothing else is said; None: until cleared."""


def _error(code: int, xid: int = 0, text: str = "") -> Callable[[Machine, Board | None, dict[str, Any]], None]:
    def start(node: Machine, board: Board | None, arguments: dict[str, Any]) -> None:
        assert board is not None
        board.error = int(arguments.get("code", code))
        board.gpu.dead = board.error == 15
        if xid:
            node.xid(board, xid, text)

    return start


def _no_error(_: Machine, board: Board | None) -> None:
    assert board is not None
    board.error = 0
    board.gpu.dead = False


def _board(**values: Any) -> Callable[[Machine, Board | None, dict[str, Any]], None]:
    """Set attributes of the board; a callable value makes the value from the arguments."""

    def start(_: Machine, board: Board | None, arguments: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(board, name, value(arguments) if callable(value) else value)

    return start


def _undo(**values: Any) -> Callable[[Machine, Board | None], None]:
    def stop(_: Machine, board: Board | None) -> None:
        for name, value in values.items():
            setattr(board, name, value)

    return stop


def _gpu(name: str, argument: str | None, normal: Any) -> tuple[Callable[..., None], Callable[..., None]]:
    """Set an attribute of the physics to an argument (None: True) and back to `normal`."""

    def start(_: Machine, board: Board | None, arguments: dict[str, Any]) -> None:
        assert board is not None
        setattr(board.gpu, name, float(arguments[argument]) if argument else True)

    def stop(_: Machine, board: Board | None) -> None:
        assert board is not None
        setattr(board.gpu, name, normal)

    return start, stop


def _node(**values: Any) -> tuple[Callable[..., None], Callable[..., None]]:
    def start(node: Machine, _: Board | None, __: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(node, name, value)

    def stop(node: Machine, _: Board | None) -> None:
        for name, value in values.items():
            setattr(node, name, type(value)())

    return start, stop


def _nothing(_: Machine, __: Board | None) -> None:
    """For faults that are over at once, or whose damage stays."""


def _hot_inlet(node: Machine, _: Board | None, arguments: dict[str, Any]) -> None:
    node.inlet_target = float(arguments["celsius"])
    node.inlet_rate = float(arguments["per_minute"])


def _cool_inlet(node: Machine, _: Board | None) -> None:
    node.inlet_target = None


def _uncorrected(node: Machine, board: Board | None, _: dict[str, Any]) -> None:
    assert board is not None
    board.uncorrected = [value + 1 for value in board.uncorrected]
    board.remapped[1] += 1
    board.remap_pending = True
    board.recovery = 4
    node.xid(board, 63, "Row remapping: row remap pending")
    node.xid(board, 94, "Contained ECC error: contained to one application")


def _remap_failure(node: Machine, board: Board | None, _: dict[str, Any]) -> None:
    assert board is not None
    board.remap_failure = True
    board.recovery = 1
    node.xid(board, 64, "Row remapping: failed to record a remapping")


def _remap_mended(_: Machine, board: Board | None) -> None:
    assert board is not None
    board.remap_failure = board.remap_pending = False
    board.recovery = 0


def _gsp_hang(node: Machine, board: Board | None, _: dict[str, Any]) -> None:
    assert board is not None
    board.hang = True
    node.xid(board, 119, "Timeout after 6s of waiting for RPC response from GPU GSP! Expected function 76")


def _gsp_dead(_: Machine, board: Board | None) -> None:
    assert board is not None
    board.hang = False
    board.error = 999


def _missing(node: Machine, board: Board | None, _: dict[str, Any]) -> None:
    assert board is not None
    board.missing = True
    node.log(f"NVRM: GPU {board.bus_id[4:].lower()}: RmInitAdapter failed! (0x22:0x56:762)")


def _glitch(_: Machine, board: Board | None, arguments: dict[str, Any]) -> None:
    assert board is not None
    board.glitch(arguments["sensor"], int(arguments["reads"]))


def _foreign_writer(_: Machine, board: Board | None, arguments: dict[str, Any]) -> None:
    assert board is not None
    board.gpu.requested = float(arguments["watts"])


def _xid(node: Machine, board: Board | None, arguments: dict[str, Any]) -> None:
    assert board is not None
    node.xid(board, int(arguments["xid"]), str(arguments["text"]))


def _reset_begins(_: Machine, board: Board | None, __: dict[str, Any]) -> None:
    assert board is not None
    board.error = 16


def _reset_done(_: Machine, board: Board | None) -> None:
    assert board is not None
    board.error = 0
    board.reset()


_LOST_TEXT = "GPU has fallen off the bus."
_UNCONTAINED = "Uncontained ECC error"

KINDS: dict[str, Kind] = {
    "hot_inlet": Kind("node", {"celsius": 45, "per_minute": 600}, _hot_inlet, _cool_inlet),
    "hot_gpu": Kind("gpu", {"factor": 2.2}, *_gpu("fouling", "factor", 1.0)),
    "hot_memory": Kind("gpu", {"celsius": 45}, *_gpu("memory_offset", "celsius", 0.0)),
    "lost": Kind("gpu", {}, _error(15, 79, _LOST_TEXT), _no_error),
    "reset_required": Kind("gpu", {}, _error(16, 95, _UNCONTAINED), _no_error),
    "hidden": Kind("gpu", {}, _error(17), _no_error),
    "unknown_error": Kind("gpu", {}, _error(999), _no_error),
    "error": Kind("gpu", {"code": 999}, _error(999), _no_error),
    "ecc_storm": Kind(
        "gpu", {"rate": 50}, _board(corrected_rate=lambda given: float(given["rate"])), _undo(corrected_rate=0.0)
    ),
    "ecc_uncorrected": Kind("gpu", {}, _uncorrected, _remap_mended),
    "remap_pending": Kind("gpu", {}, _board(remap_pending=True), _remap_mended),
    "remap_failure": Kind("gpu", {}, _remap_failure, _remap_mended),
    "hang": Kind("gpu", {}, _board(hang=True), _undo(hang=False)),
    "gsp_hang": Kind("gpu", {}, _gsp_hang, _gsp_dead, 6.0),
    "hang_all": Kind("node", {}, *_node(hang=True)),
    "hang_init": Kind("node", {}, *_node(init_hang=True)),
    "segfault": Kind("gpu", {}, _board(segfault=True), _undo(segfault=False)),
    "glitch": Kind("gpu", {"sensor": "temperature", "reads": 1}, _glitch, _nothing, 0.0),
    "driver_mismatch": Kind("node", {}, *_node(init_error=18)),
    "driver_absent": Kind("node", {}, *_node(init_error=9, session_error=9)),
    "library_absent": Kind("node", {}, *_node(init_error=12)),
    "missing": Kind("gpu", {}, _missing, _undo(missing=False)),
    "power_brake": Kind("any", {}, *_gpu("brake", None, False)),
    "bmc_cap": Kind("any", {"watts": 500}, *_gpu("outside_limit", "watts", 0.0)),
    "foreign_writer": Kind("any", {"watts": 500}, _foreign_writer, _nothing, 0.0),
    "setter_refused": Kind(
        "any", {"code": 4}, _board(setter_error=lambda given: int(given["code"])), _undo(setter_error=0)
    ),
    "setter_ignored": Kind("any", {}, _board(setter_ignored=True), _undo(setter_ignored=False)),
    "gpm_denied": Kind("any", {"code": 4}, _board(gpm_error=lambda given: int(given["code"])), _undo(gpm_error=0)),
    "pcie_downgraded": Kind(
        "gpu",
        {"generation": 1, "width": 8},
        _board(pcie=lambda given: (int(given["generation"]), int(given["width"]))),
        lambda _, board: setattr(board, "pcie", (board.profile.pcie_generation, 16)) if board else None,
    ),
    "xid": Kind("gpu", {"xid": 31, "text": "MMU Fault"}, _xid, _nothing, 0.0),
    "gpu_reset": Kind("gpu", {}, _reset_begins, _reset_done, 15.0),
}


_RANGES: dict[str, tuple[float, float]] = {
    "celsius": (-50, 150),
    "per_minute": (0.1, 6000),
    "factor": (0.1, 20),
    "rate": (0, 1e6),
    "watts": (1, 5000),
    "code": (1, 999),
    "reads": (1, GLITCH_READS - 1),
    "generation": (1, 9),
    "width": (1, 32),
    "xid": (1, 999),
}
"""Argument -> least and most: beyond them the model is nonsense, or its numbers overflow the machine's memory."""
_WHOLE = frozenset({"code", "reads", "generation", "width", "xid"})


def _check_argument(kind: str, name: str, value: Any) -> str:
    """Return what is wrong with the value of an argument that the kind knows, empty if nothing."""
    default = KINDS[kind].defaults[name]
    if isinstance(default, str):
        return "" if isinstance(value, str) else f'"{name}" of the fault "{kind}" must be like {default!r}'
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f'"{name}" of the fault "{kind}" must be a number: write for example {default}'
    least, most = _RANGES[name]
    whole = name in _WHOLE
    # NaN fails the comparison, so it never reaches `int`.
    if not least <= value <= most or (whole and math.trunc(value) != value):
        number = "a whole number" if whole else "a number"
        return f'"{name}" of the fault "{kind}" must be {number} from {least:.10g} to {most:.10g}'
    return ""


def check(kind: str, gpu: int | None, gpus: int, arguments: dict[str, Any]) -> str:  # noqa: PLR0911  one line a mistake
    """Return what is wrong with a fault as it was asked for, empty if nothing."""
    if kind not in KINDS:
        return f'no fault is called "{kind}": write one of {", ".join(sorted(KINDS))}'
    spec = KINDS[kind]
    if spec.scope == "gpu" and gpu is None:
        return f'the fault "{kind}" needs a GPU: add gpu: 0 to {gpus - 1}'
    if spec.scope == "node" and gpu is not None:
        return f'the fault "{kind}" concerns the whole node: remove gpu'
    if gpu is not None and not (isinstance(gpu, int) and not isinstance(gpu, bool) and 0 <= gpu < gpus):
        return f"there is no GPU {gpu}: write 0 to {gpus - 1}"
    for name, value in arguments.items():
        if name not in spec.defaults:
            takes = f"it takes {', '.join(spec.defaults)}" if spec.defaults else "it takes nothing"
            return f'the fault "{kind}" knows no "{name}": {takes}'
        if problem := _check_argument(kind, name, value):
            return problem
    if arguments.get("sensor", SENSORS[0]) not in SENSORS:
        return f'no sensor is called "{arguments["sensor"]}": write one of {", ".join(SENSORS)}'
    return ""
