"""Probes GPUs that are set aside, each from a short-lived child of its own: a sick one must not delay the innocent."""

from collections.abc import Callable
from typing import Any

from coldaisle.drivers.nvml_generation import Generation
from coldaisle.drivers.quarantine import Quarantine

PROBE_DEADLINE = 15.0
"""Seconds that a probe of one GPU may take before it counts as failed."""

Message = dict[str, Any]
Launch = Callable[[Message, float, Callable[[Generation, Message | None], None]], Generation | None]


class Prober:
    """Runs the probes that are due.

    Args:
        quarantine: who is set aside and when each is due.
        launch: starts a child with a job and a callback for its messages; None if it cannot.
        retire: ends a child.
        judge: told a GPU's index and what its probe said, None if it said nothing.
    """

    def __init__(
        self,
        quarantine: Quarantine,
        launch: Launch,
        retire: Callable[[Generation, float], None],
        judge: Callable[[int, Message | None], None],
    ) -> None:
        self._quarantine = quarantine
        self._launch = launch
        self._retire = retire
        self._judge = judge
        self._running: dict[int, Generation] = {}
        self._now = 0.0

    @property
    def pids(self) -> dict[str, int]:
        """Pid by role of the probes that run."""
        return {f"nvml-probe-{index}": generation.child.pid for index, generation in self._running.items()}

    def look(self, now: float) -> None:
        """Give up probes past their deadline and start those that are due."""
        self._now = now
        for index, generation in list(self._running.items()):
            if now - generation.started_at > PROBE_DEADLINE:
                self._end(index, None)
        for index in self._quarantine.due(now):
            if index not in self._running:
                launched = self._launch({"probe": index}, now, self._on_message)
                if launched is not None:
                    self._running[index] = launched

    def stop(self, now: float) -> None:
        """End all probes without a verdict."""
        for generation in self._running.values():
            self._retire(generation, now)
        self._running.clear()

    def _on_message(self, generation: Generation, message: Message | None) -> None:
        for index, running in self._running.items():
            if running is generation:
                self._end(index, message)
                return

    def _end(self, index: int, message: Message | None) -> None:
        self._retire(self._running.pop(index), self._now)
        self._judge(index, message)
