"""All parts of the main process, made from the options and wired to each other. Nothing runs until `start`."""

import asyncio
import fnmatch
import os
from collections.abc import Callable
from typing import Any, cast

import psutil

from coldaisle.app.agent import Agent
from coldaisle.app.config_collector import ConfigCollector
from coldaisle.app.directories import Directories
from coldaisle.app.options import RunOptions
from coldaisle.app.simulated import SimulatedMachine
from coldaisle.app.websites import WEB_RELOAD
from coldaisle.collectors.agent import AgentCollector
from coldaisle.collectors.events import EventsCollector
from coldaisle.collectors.filesystem import FilesystemCollector
from coldaisle.collectors.host import HostCollector
from coldaisle.collectors.processes import ProcessCollector
from coldaisle.config.models import Config
from coldaisle.config.reload import Reloader
from coldaisle.domain.clock import Clock
from coldaisle.domain.events import Event, EventStream
from coldaisle.domain.gpu import GpuIdentity
from coldaisle.domain.health import Health
from coldaisle.drivers.filesystems import Filesystems, FilesystemSettings
from coldaisle.drivers.host import Host, Psutil
from coldaisle.drivers.inventory import Inventory, read_inventory
from coldaisle.drivers.nvml_supervisor import NvmlSupervisor
from coldaisle.drivers.own_processes import OwnProcesses
from coldaisle.drivers.reader_client import ReaderClient
from coldaisle.metrics.families import Sample
from coldaisle.metrics.gpu_fields import GPU_FIELDS
from coldaisle.metrics.gpu_table import GpuTable
from coldaisle.metrics.xids import explain
from coldaisle.schedule.families import FAMILIES as SCHEDULE_FAMILIES

INVENTORY_EVERY = 300.0
"""Seconds between looks at DMI, PCI bus and the like: they change with a reboot, a hot-plug or an operator's edit."""
SIMULATED_GPUS = 8
SIMULATED = {
    "dgx-a100": "DGXA100 (simulated)",
    "dgx-h100": "DGXH100 (simulated)",
    "dgx-h200": "DGXH200 (simulated)",
    "dgx-b200": "DGXB200 (simulated)",
    "": "",
}


def wanted_keys(config: Config) -> list[str] | None:
    """Return the catalogue keys that `gpu.fields` asks for, None for all."""
    fields = config.gpu.fields
    if not fields.include and not fields.exclude:
        return None
    include = fields.include or ("*",)
    return [
        field.key
        for field in GPU_FIELDS
        if any(fnmatch.fnmatchcase(field.key, pattern) for pattern in include)
        and not any(fnmatch.fnmatchcase(field.key, pattern) for pattern in fields.exclude)
    ]


class Parts:
    """Everything that reads, counts and publishes.

    Args:
        options: what the command line and the file say.
        directories: where sockets and state go.
        clock: time.
        machine: the simulated machine, None on a real one.
    """

    def __init__(
        self, options: RunOptions, directories: Directories, clock: Clock, machine: SimulatedMachine | None
    ) -> None:
        self.options = options
        self.config = options.config
        self.directories = directories
        self.clock = clock
        self.events = EventStream()
        self.table = GpuTable(self.config.gpu.interval)
        self.agent: Agent
        self.recording = ""
        self._machine = machine
        self._simulated = bool(options.simulate or options.replay)
        paths = self.config.paths
        self.filesystems = Filesystems(clock, procfs=paths.procfs, settings=_filesystem_settings(self.config))
        self.host = Host(cast("Psutil", psutil), procfs=paths.procfs, sysfs=paths.sysfs)
        self.processes = OwnProcesses(self.pids, procfs=paths.procfs)
        self.inventory = self._read_inventory()
        self.reader = self._make_reader()
        self.supervisor: NvmlSupervisor

    def assemble(self, reloader: Reloader, extra_samples: Callable[[], list[Sample]]) -> Agent:
        """Wire the parts; must be called on the running event loop."""
        loop = asyncio.get_running_loop()
        self.supervisor = NvmlSupervisor(
            self.table,
            self._vendor(),
            hang_deadline=self.config.gpu.hang_deadline,
            notify=lambda *event: self.agent.note(*event),  # noqa: PLW0108  the agent is made after this
            watch=loop.add_reader,
            unwatch=loop.remove_reader,
            on_xid=self._on_xid,
        )
        filesystem = FilesystemCollector(self.filesystems.read, lambda: self.filesystems.problem)
        own = AgentCollector(
            restarts=lambda: self.supervisor.restarts,
            quarantined=lambda: len(self.supervisor.quarantine.members),
            released=lambda: self.supervisor.released,
            events=lambda: self.events.appended,
            health=lambda now: self.agent.source_health(now),  # noqa: PLW0108  likewise
        )
        self.agent = Agent(
            clock=self.clock,
            events=self.events,
            table=self.table,
            supervisor=self.supervisor,
            inventory=lambda: self.inventory,
            collectors=[
                filesystem,
                *([HostCollector(self.host.read)] if self.config.host.enabled else []),
                EventsCollector(
                    self.events, self._identities, lambda: self.reader.status if self.reader else None, self.clock
                ),
                ConfigCollector(lambda: reloader.state),
                ProcessCollector(self.processes.read),
                own,
            ],
            extra_samples=extra_samples,
            extra_families=(*SCHEDULE_FAMILIES, WEB_RELOAD),
            sources=self._sources,
            filesystems=filesystem.views,
            mode=lambda: self.config.mode.value,
            simulated=self._simulated,
        )
        return self.agent

    def start(self) -> None:
        """Start the threads and processes that read."""
        self.filesystems.start()
        if self.reader is not None:
            self.reader.start()

    async def stop(self, deadline: float) -> None:
        """End them all; vendor children get SIGTERM, then time, then SIGKILL, and are not waited for beyond that."""
        self.supervisor.stop(self.clock.monotonic())
        if self.reader is not None:
            await self.reader.stop()
        self.filesystems.stop()
        try:
            async with asyncio.timeout(deadline):
                while not self.agent.handles_closed():  # noqa: ASYNC110  a process's end is found by asking
                    await asyncio.sleep(0.02)
        except TimeoutError:
            return

    def apply(self, config: Config) -> None:
        """Take over a new configuration."""
        if wanted_keys(config) != wanted_keys(self.config):
            self.supervisor.reconfigure({**self._vendor_of(config)}, self.clock.monotonic())
        self.config = config
        self.table.interval = config.gpu.interval
        self.supervisor.hang_deadline = config.gpu.hang_deadline
        self.filesystems.reconfigure(_filesystem_settings(config))
        self.inventory = self._read_inventory()

    def record(self, path: str) -> None:
        """Start a fresh vendor child that records to `path`; empty: one that does not."""
        self.recording = path
        self.supervisor.reconfigure(self._vendor(), self.clock.monotonic())

    def jobs(self) -> list[tuple[float, str, Callable[[], None]]]:
        """Slow jobs as (seconds between runs, name, function to run in a thread)."""
        return [(INVENTORY_EVERY, "inventory", self._refresh_inventory)]

    def pids(self) -> dict[str, int]:
        """Pid of every process of ours by role."""
        pids = {"main": os.getpid(), **self.supervisor.pids}
        if self.reader is not None and self.reader.pids:
            pids["reader"] = self.reader.pids[0]
        if self._machine is not None:
            pids["simulator"] = self._machine.pid
        return pids

    # ------------------------------------------------------------------------------------------------------------------

    def _vendor(self) -> dict[str, Any]:
        return self._vendor_of(self.config)

    def _vendor_of(self, config: Config) -> dict[str, Any]:
        vendor: dict[str, Any] = {"wanted": wanted_keys(config)}
        if self._machine is not None:
            vendor["simulator"] = str(self._machine.directory)
        elif self.options.replay is not None:
            vendor["replay"] = str(self.options.replay)
        if target := self.recording or self.options.record:
            vendor["record"] = str(target)
        return vendor

    def _make_reader(self) -> ReaderClient | None:
        if not self.config.reader.enabled or self.options.replay is not None:
            return None
        kmsg = self._machine.kmsg if self._machine is not None else self.config.reader.kmsg
        # A simulated kernel log starts anew each time: a position in the real one's file would skip its beginning.
        state = self._machine.directory if self._machine is not None else self.directories.state
        return ReaderClient(str(kmsg), str(state), self.events.append, self._uuid_of, self.clock)

    def _sources(self, now: float) -> list[Health]:
        return self.reader.health(now) if self.reader is not None else []

    def _identities(self) -> list[GpuIdentity]:
        return [record.identity for record in self.table.gpus.values() if record.identity.uuid]

    def _uuid_of(self, bdf: str) -> str | None:
        return next((identity.uuid for identity in self._identities() if identity.pci_bus_id == bdf), None)

    def _on_xid(self, uuid: str, xid: int) -> None:
        entry = explain(xid)
        self.events.append(
            Event(
                self.clock.wall(),
                "xid",
                f"xid_{xid}",
                entry.severity,
                f"Xid {xid}: {entry.meaning}",
                "nvml",
                uuid,
                (("xid", str(xid)),),
            )
        )

    def _refresh_inventory(self) -> None:
        self.inventory = self._read_inventory()

    def _read_inventory(self) -> Inventory:
        paths, node = self.config.paths, self.config.node
        inventory = read_inventory(
            override=node.expected_gpus, hostname=node.name, sysfs=paths.sysfs, procfs=paths.procfs
        )
        if self._machine is not None and node.expected_gpus is None:
            count = self.options.gpus or SIMULATED_GPUS
            product = SIMULATED[self.options.simulate or ""]
            inventory = inventory._replace(product=product, expected_gpus=count, expected_by="simulation")
        elif self.options.replay is not None and node.expected_gpus is None:
            inventory = inventory._replace(expected_gpus=None)
        return inventory


def _filesystem_settings(config: Config) -> FilesystemSettings:
    section = config.filesystems
    return FilesystemSettings(
        section.interval, section.network_deadline, section.exclude_mountpoints, section.exclude_types
    )
