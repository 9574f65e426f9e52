"""`collect` and `replay`: sample once, for a person or a pipe, with the very parts that the agent runs."""

import asyncio
import tempfile
from pathlib import Path

from coldaisle.app.directories import Directories, choose
from coldaisle.app.main import loop_factory
from coldaisle.app.options import AbsentReading, Collected, RunOptions
from coldaisle.app.parts import Parts
from coldaisle.app.simulated import SimulatedMachine
from coldaisle.config.reload import Reloader
from coldaisle.domain.clock import SystemClock
from coldaisle.domain.readings import Absence
from coldaisle.metrics.gpu_fields import GPU_FIELDS

TICKS = 3
"""Rates (GPM, time in state) need two samples one interval apart; the first tick only starts the child."""
START_DEADLINE = 30.0
"""Seconds for the vendor library to answer or fail once; initialising eight GPUs without persistence takes seconds."""
STOP_DEADLINE = 12.0


def collect(options: RunOptions) -> Collected:
    """Return one complete sample. Nothing is left running; a running agent is not disturbed."""
    state = choose(options.config.paths.runtime, options.config.paths.state).state
    with tempfile.TemporaryDirectory(prefix="coldaisle-") as temporary:
        runtime = Path(temporary)
        machine = None
        if options.simulate:
            machine = SimulatedMachine(
                runtime / "simulator", options.simulate, options.gpus, options.scenario, options.seed
            )
            machine.wait_ready()
        try:
            # The kernel log is the running agent's business: its reader's position must not be moved by a look.
            config = options.config.model_copy(
                update={"reader": options.config.reader.model_copy(update={"enabled": False})}
            )
            parts = Parts(options._replace(config=config), Directories(runtime, state), SystemClock(), machine)
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                return runner.run(_sample(parts))
        finally:
            if machine is not None:
                machine.stop()


async def _sample(parts: Parts) -> Collected:
    clock = parts.clock
    agent = parts.assemble(Reloader(None, parts.apply, clock, initial=parts.config), list)
    parts.start()
    deadline = clock.monotonic() + START_DEADLINE
    ticks = 0
    try:
        while ticks < TICKS:
            await agent.tick(clock.monotonic())
            if agent.ready()[0]:
                ticks += 1
            elif clock.monotonic() > deadline:
                break
            await asyncio.sleep(parts.table.interval if ticks else 0.1)
        exposition = agent.exposition()
        return Collected(
            agent.node(), agent.health(), exposition.text(), exposition.openmetrics(), tuple(_absent(parts))
        )
    finally:
        await parts.stop(STOP_DEADLINE)


def _absent(parts: Parts) -> list[AbsentReading]:
    now = parts.clock.monotonic()
    absent = []
    for index, record in sorted(parts.table.gpus.items()):
        for field in GPU_FIELDS:
            reading = parts.table.reading(record, field.key, now)
            if isinstance(reading, Absence):
                detail = record.reason or ""
                absent.append(AbsentReading(str(index), field.key, reading.value, detail))
    return absent
