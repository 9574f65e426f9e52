"""Prints docs/metrics.md from the parts that the agent really runs."""

import asyncio
import sys
import tempfile
from pathlib import Path

from coldaisle.app.directories import Directories
from coldaisle.app.options import RunOptions
from coldaisle.app.parts import Parts
from coldaisle.config.models import Config
from coldaisle.config.reload import Reloader
from coldaisle.domain.clock import SystemClock
from coldaisle.metrics.families import Family
from coldaisle.metrics.reference import render


def families() -> tuple[Family, ...]:
    """Return every family that the agent can publish, in order."""

    async def assemble() -> tuple[Family, ...]:
        with tempfile.TemporaryDirectory() as directory:
            config = Config()
            parts = Parts(
                RunOptions(config), Directories(Path(directory), Path(directory)), SystemClock(), None
            )
            reloader = Reloader(None, parts.apply, parts.clock, initial=config)
            return parts.assemble(reloader, list).families

    return asyncio.run(assemble())


if __name__ == "__main__":
    sys.stdout.write(render(families()))
