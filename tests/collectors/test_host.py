"""From a host reading to samples."""

from typing import Any, NamedTuple

from coldaisle.collectors.host import HostCollector


class Nic(NamedTuple):
    kind: str
    up: bool | None
    counters: dict[str, int]


class Reading(NamedTuple):
    cpu_seconds: Any = None
    cpus: Any = None
    load: Any = None
    memory: Any = None
    swap: Any = None
    pressure: Any = None
    network: Any = None
    open_files: Any = None
    open_files_limit: Any = None
    boot_time: Any = None
    problem: str = ""


TRAFFIC = {f"{way}_{what}": 1 for what in ("bytes", "packets", "errors", "drops") for way in ("receive", "transmit")}
FULL = Reading(
    cpu_seconds={"user": 1.5, "idle": 9.0},
    cpus=224,
    load=(1.0, 2.0, 3.0),
    memory={"size": 100, "available": 70, "used": 30, "free": 40, "buffers": 5, "cached": 25},
    swap={"size": 64, "used": 16, "in": 7, "out": 9},
    pressure={("io", "some"): 2.5, ("io", "full"): 0.25},
    network={"ib0": Nic("infiniband", None, {}), "bond0": Nic("bond", True, TRAFFIC)},
    open_files=4352,
    open_files_limit=9000,
    boot_time=1_800_000_000.0,
)
GOLDEN = """\
dgx_host_cpus{} 224
dgx_host_open_files{} 4352
dgx_host_open_files_limit{} 9000
dgx_host_boot_timestamp_seconds{} 1800000000.0
dgx_host_cpu_seconds_total{mode=user} 1.5
dgx_host_cpu_seconds_total{mode=idle} 9.0
dgx_host_load{window=1m} 1.0
dgx_host_load{window=5m} 2.0
dgx_host_load{window=15m} 3.0
dgx_host_memory_size_bytes{} 100
dgx_host_memory_available_bytes{} 70
dgx_host_memory_bytes{state=used} 30
dgx_host_memory_bytes{state=free} 40
dgx_host_memory_bytes{state=buffers} 5
dgx_host_memory_bytes{state=cached} 25
dgx_host_swap_size_bytes{} 64
dgx_host_swap_used_bytes{} 16
dgx_host_swap_moved_bytes_total{direction=in} 7
dgx_host_swap_moved_bytes_total{direction=out} 9
dgx_host_pressure_seconds_total{resource=io,kind=some} 2.5
dgx_host_pressure_seconds_total{resource=io,kind=full} 0.25
dgx_network_info{interface=ib0,kind=infiniband} 1
dgx_network_info{interface=bond0,kind=bond} 1
dgx_network_up{interface=bond0} 1
dgx_network_receive_bytes_total{interface=bond0} 1
dgx_network_transmit_bytes_total{interface=bond0} 1
dgx_network_receive_packets_total{interface=bond0} 1
dgx_network_transmit_packets_total{interface=bond0} 1
dgx_network_receive_errors_total{interface=bond0} 1
dgx_network_transmit_errors_total{interface=bond0} 1
dgx_network_receive_drops_total{interface=bond0} 1
dgx_network_transmit_drops_total{interface=bond0} 1
"""


def text(result):
    return "".join(
        f"{s.family.name}{{{','.join(f'{k}={v}' for k, v in zip(s.family.labels, s.labels, strict=True))}}} {s.value}\n"
        for s in result.samples
    )


def test_golden_samples():
    """Everything that a host can give, in base units."""
    result = HostCollector(lambda: FULL).collect(0.0)
    assert text(result) == GOLDEN
    assert result.problem == ""


def test_what_was_not_read_is_absent():
    """No part read: no sample at all, and the reason makes the collector degraded."""
    result = HostCollector(lambda: Reading(problem="cannot read cpu: gone")).collect(0.0)
    assert (list(result.samples), result.problem) == ([], "cannot read cpu: gone")


def test_every_family_is_declared():
    """What is emitted is what the catalogue of metrics lists."""
    collector = HostCollector(lambda: FULL)
    assert {sample.family for sample in collector.collect(0.0).samples} == set(collector.families)
