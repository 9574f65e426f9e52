"""Starts the simulated machine that `run --simulate` samples instead of real GPUs."""

import select
import signal
import subprocess
import sys
from pathlib import Path

from coldaisle.domain.errors import ColdaisleError

READY_DEADLINE = 20.0
"""Seconds for the simulator to lay out its files: a fraction of a second on an idle machine, more on a busy one."""


class SimulatedMachine:
    """The simulator's process.

    Args:
        directory: where it keeps its state, socket and kernel log.
        profile: `dgx-a100`, `dgx-h100`, `dgx-h200` or `dgx-b200`.
        gpus: number of GPUs, None for the profile's own.
        scenario: a scenario file.
        seed: makes workloads repeatable.
    """

    def __init__(
        self, directory: Path, profile: str, gpus: int | None, scenario: Path | None, seed: int | None
    ) -> None:
        self.directory = directory
        command = [sys.executable, "-m", "coldaisle.app.simulator", "--dir", str(directory), "--profile", profile]
        if gpus is not None:
            command += ["--gpus", str(gpus)]
        if scenario is not None:
            command += ["--scenario", str(scenario)]
        if seed is not None:
            command += ["--seed", str(seed)]
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._process = subprocess.Popen(  # noqa: S603  our own interpreter and module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def kmsg(self) -> Path:
        """Its kernel log."""
        return self.directory / "kmsg"

    def wait_ready(self) -> None:
        """Wait until its files exist. Raises ColdaisleError with what it said if it ends instead."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], READY_DEADLINE)
        line = self._process.stdout.readline() if readable else ""
        if line.strip() == "ready":
            return
        self.stop()
        assert self._process.stderr is not None
        said = self._process.stderr.read().strip()
        raise ColdaisleError(
            said.removeprefix("coldaisle: error: ") or "the simulator did not start",
            remedy="check the --scenario file and the --simulate profile",
        )

    def stop(self) -> None:
        """End it and wait."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
