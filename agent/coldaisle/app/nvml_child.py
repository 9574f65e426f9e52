"""Entry of the vendor child: `python -m coldaisle.app.nvml_child`, started by the supervisor only."""

import ctypes
import json
import os
import signal
import socket
import sys
import time
from typing import Any

from coldaisle.drivers.nvml.child import VendorChild, probe
from coldaisle.drivers.nvml.flight import CALLS, FlightRecorder

_PR_SET_PDEATHSIG = 1


def make_vendor(spec: dict[str, Any]) -> Any:
    """Return the vendor module that `spec` names: real, simulated or replayed, recorded on the way if asked."""
    vendor: Any
    if machine := spec.get("simulator"):
        from coldaisle.simulation.nvml import SimulatedNvml  # noqa: PLC0415  each child loads only what it needs

        vendor = SimulatedNvml(machine)
    elif recording := spec.get("replay"):
        from coldaisle.domain.clock import SystemClock  # noqa: PLC0415
        from coldaisle.drivers.recording import ReplayNvml  # noqa: PLC0415

        vendor = ReplayNvml(recording, SystemClock(), loop=True)
    else:
        import pynvml  # noqa: PLC0415

        vendor = pynvml
    if (target := spec.get("record")) and spec.get("probe") is None:  # a probe is no part of the recording
        from coldaisle.domain.clock import SystemClock  # noqa: PLC0415
        from coldaisle.drivers.recording import RecordingNvml  # noqa: PLC0415

        vendor = RecordingNvml(vendor, target, SystemClock())
    return vendor


def main() -> None:
    """Read the job from argv[1] (JSON) and run it."""
    job = json.loads(sys.argv[1])
    # SIGTERM when the main process dies, however it dies: nobody else would ever close these handles.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    channel = socket.socket(fileno=job["channel"])
    recorder = FlightRecorder(job["flight"], CALLS)
    vendor = make_vendor(job)
    wanted = frozenset(job["wanted"]) if job.get("wanted") is not None else None
    if (index := job.get("probe")) is not None:

        def answer(message: dict[str, Any]) -> None:
            channel.send(json.dumps(message).encode())

        probe(vendor, index, recorder, answer)
        os._exit(0)
    VendorChild(vendor, channel, recorder, frozenset(job.get("skip", ())), wanted, time.monotonic).run()


if __name__ == "__main__":
    main()
