"""One running vendor child and what main knows of it."""

import os
from typing import NamedTuple

from coldaisle.drivers.child_process import Child
from coldaisle.drivers.nvml.flight import FlightRecorder


class Driver(NamedTuple):
    """What the library said about itself."""

    driver: str = ""
    nvml: str = ""
    cuda: str = ""
    gpus: int | None = None


class Generation:
    """One running child and what is known of it."""

    __slots__ = ("answered", "child", "flight_fd", "hello", "recorder", "returning", "started_at", "ticked_at")

    def __init__(self, child: Child, recorder: FlightRecorder, flight_fd: int, now: float) -> None:
        self.child = child
        self.recorder = recorder
        self.flight_fd = flight_fd
        self.started_at = now
        self.ticked_at = now
        self.hello = False
        self.answered: dict[int, int] = {}
        self.returning: list[int] = []
        """GPUs that passed their probe before this child had initialised the library: added once it has."""

    def close(self) -> None:
        """Unmap and close the flight recorder."""
        self.recorder.close()
        os.close(self.flight_fd)
