"""The simulated node: its GPUs, schedule and faults as time passes; fills the machine's memory and its kernel log."""

import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple, TextIO

from coldaisle.simulation import faults, profiles
from coldaisle.simulation.board import Board
from coldaisle.simulation.machine import NODE, Writer
from coldaisle.simulation.physics import INLET, PREHEAT, Gpu, step
from coldaisle.simulation.profiles import Profile
from coldaisle.simulation.workloads import BY_NAME, Schedule

STEP = 0.1
"""Seconds of simulated time a step."""


class Active(NamedTuple):
    """A fault that is on."""

    kind: str
    gpu: int | None
    until: float


class Node:
    """The machine as a whole; one thread only.

    Args:
        profile: the product.
        gpus: how many GPUs.
        seed: what makes two machines differ: the GPUs' spread, noise and jobs.
        writer: the memory that readers map.
        kmsg: the kernel log, appended to.
        monotonic: seconds for the kernel log's time stamps.
    """

    def __init__(
        self, profile: Profile, gpus: int, seed: int, writer: Writer, kmsg: TextIO, monotonic: Callable[[], float]
    ) -> None:
        self.profile = profile
        self.now = 0.0
        self.on_xid: Callable[[int, int], None] = lambda _gpu, _xid: None
        self._writer = writer
        self._kmsg = kmsg
        self._monotonic = monotonic
        self._sequence = 0
        self._schedule = Schedule(gpus, seed)
        self._active: list[Active] = []
        self.boards = [_board(profile, index, seed) for index in range(gpus)]
        self.init_error = 0
        self.init_hang = False
        self.hang = False
        self.session_error = 0
        self.base_inlet = INLET
        self.inlet = INLET
        self.inlet_target: float | None = None
        self.inlet_rate = 0.0
        self.script: Callable[[float], None] = lambda _now: None
        version = profiles.DRIVER_VERSION
        self.log(f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build", 5)
        self.publish()

    def advance(self, seconds: float) -> None:
        """Let simulated time pass in steps and publish the end."""
        for _ in range(max(1, round(seconds / STEP))):
            self._step()
        self.publish()

    def _step(self) -> None:
        self.now += STEP
        self.script(self.now)
        for fault in [fault for fault in self._active if fault.until <= self.now]:
            self._end(fault)
        self._move_inlet()
        loads = self._schedule.loads(self.now)
        for board in self.boards:
            gpu = board.gpu
            gpu.inlet = self.inlet
            board.take_load(loads[board.index])
            board.count_errors(STEP)
            step(gpu, STEP)
            if gpu.core >= self.profile.shutdown and not board.error:
                self.log(f"NVRM: GPU {board.bus_id[4:].lower()}: thermal shutdown")
                self.fault("lost", board.index)

    def _move_inlet(self) -> None:
        target = self.base_inlet if self.inlet_target is None else self.inlet_target
        most = (self.inlet_rate or 600) / 60 * STEP
        self.inlet += max(-most, min(most, target - self.inlet))

    def publish(self) -> None:
        """Show the present state to readers."""
        node = self._writer.node
        node[NODE["init_error"]] = self.init_error
        node[NODE["init_hang"]] = self.init_hang
        node[NODE["hang"]] = self.hang
        node[NODE["session_error"]] = self.session_error
        node[NODE["trouble"]] = bool(self.hang or self.session_error)
        for board, record in zip(self.boards, self._writer.gpus, strict=True):
            board.fill(record)
        self._writer.publish()

    def fault(
        self, kind: str, gpu: int | None = None, seconds: float | None = None, arguments: dict[str, Any] | None = None
    ) -> None:
        """Begin a fault. Raises ValueError with what is wrong about it."""
        given = arguments or {}
        if problem := faults.check(kind, gpu, len(self.boards), given):
            raise ValueError(problem)
        spec = faults.KINDS[kind]
        for board in self._concerned(spec, gpu):
            spec.start(self, board, {**spec.defaults, **given})
        lasts = spec.seconds if seconds is None else seconds
        if lasts == 0 and seconds is None:
            return
        self._active = [fault for fault in self._active if (fault.kind, fault.gpu) != (kind, gpu)]
        self._active.append(Active(kind, gpu, math.inf if lasts is None else self.now + lasts))

    def clear(self, gpu: int | None = None, kind: str | None = None) -> int:
        """End the faults of a GPU, of a kind, both, or all; return how many ended."""
        ended = [fault for fault in self._active if gpu in (None, fault.gpu) and kind in (None, fault.kind)]
        for fault in ended:
            self._end(fault)
        for board in self.boards:
            if kind is None and gpu in (None, board.index) and not self._has_error(board.index):
                board.error = 0  # what a wedged GSP leaves behind
        return len(ended)

    def _has_error(self, gpu: int) -> bool:
        return any(fault.gpu == gpu for fault in self._active)

    def _end(self, fault: Active) -> None:
        self._active.remove(fault)
        spec = faults.KINDS[fault.kind]
        for board in self._concerned(spec, fault.gpu):
            spec.stop(self, board)

    def _concerned(self, spec: faults.Kind, gpu: int | None) -> list[Board] | list[None]:
        if spec.scope == "node":
            return [None]
        return self.boards if gpu is None else [self.boards[gpu]]

    def pin(self, load: str, gpus: list[int]) -> None:
        """Put a load on GPUs; `schedule` gives them back to it. Raises ValueError for an unknown load."""
        if load != "schedule" and load not in BY_NAME:
            raise ValueError(f'no load is called "{load}": write schedule or one of {", ".join(sorted(BY_NAME))}')
        for index in gpus:
            self.boards[index].pinned = BY_NAME.get(load)

    def xid(self, board: Board, number: int, text: str) -> None:
        """Log an Xid as the driver words it and tell subscribers."""
        address = f"PCI:{board.bus_id[4:-2]}"
        self.log(f"NVRM: Xid ({address}): {number}, pid='<unknown>', name=<unknown>, {text}")
        self.on_xid(board.index, number)

    def log(self, text: str, priority: int = 3) -> None:
        """Append one record to the kernel log in /dev/kmsg's format."""
        self._kmsg.write(f"{priority},{self._sequence},{int(self._monotonic() * 1e6)},-;{text}\n")
        self._kmsg.flush()
        self._sequence += 1

    def state(self) -> dict[str, Any]:
        """Return what tests and people may want to know, as plain values."""
        return {
            "now": round(self.now, 3),
            "inlet": round(self.inlet, 2),
            "faults": [{"kind": fault.kind, "gpu": fault.gpu} for fault in self._active],
            "gpus": [
                {
                    "load": board.gpu.load.name,
                    "power": board.gpu.power,
                    "core": board.gpu.core,
                    "memory": board.gpu.memory,
                    "clock": board.gpu.clock,
                    "reasons": board.gpu.reasons,
                    "requested": board.gpu.requested,
                    "enforced": board.gpu.enforced,
                    "locked": board.gpu.locked,
                }
                for board in self.boards
            ],
        }


def _board(profile: Profile, index: int, seed: int) -> Board:
    spread = random.Random(f"{seed}/gpu/{index}")  # noqa: S311  a model's spread, no secret
    # Air reaches the second row of cold plates warmer; no two mounts are alike.
    preheat = PREHEAT + (index % 4) * 0.8 + spread.uniform(-0.5, 0.5)
    gpu = Gpu(profile, f"{seed}/noise/{index}", preheat, spread.uniform(0.97, 1.04))
    return Board(profile, index, gpu)
