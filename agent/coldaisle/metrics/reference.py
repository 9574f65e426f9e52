"""Renders docs/metrics.md from the families themselves, so that it cannot be wrong."""

from collections.abc import Sequence

from coldaisle.metrics.families import Family
from coldaisle.metrics.gpu_fields import GPU_FIELDS, INTERVALS, Call, FieldId, Gpm, Query

_HEAD = """# Metrics

Generated from the catalogue and the collectors (`make reference`); do not edit by hand.

Prefix `dgx_` for the machine, `coldaisle_` for the agent itself. Base units. A value that is not known is absent: a
series that is missing means "not on this GPU, failed, or too old", never zero.

"""


def _query(query: Query) -> str:
    if isinstance(query, FieldId):
        return f"field {query.id}"
    if isinstance(query, Gpm):
        return f"GPM {query.id}"
    assert isinstance(query, Call)
    return f"`{'nvmlDeviceGetMemoryInfo' if query.function == 'memory_info' else query.function}`"


def render(families: Sequence[Family]) -> str:
    """Return the page for `families`, in their order."""
    lines = [_HEAD, "## Families", "", "| name | type | labels | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{family.name}` | {family.kind.value} | {', '.join(family.labels) or '-'} | {family.help} |"
        for family in families
    ]
    lines += [
        "",
        "## GPU quantities",
        "",
        "Keys are what `gpu.fields` in the configuration and `collect --format json` use. NVML queries are tried from "
        "the left. Every n ticks (a tick is `gpu.interval`, one second by default): "
        + ", ".join(f"{cadence} {ticks}" for cadence, ticks in INTERVALS.items())
        + ". A value outside the bounds is refused as impossible.",
        "",
        "| key | family | labels | cadence | NVML | DCGM field | bounds |",
        "|---|---|---|---|---|---|---|",
    ]
    for field in GPU_FIELDS:
        name = f"`{field.family.name}`" if field.family else "-"
        bounds = f"{field.low:g} … {field.high:g}" if field.high < 1e17 else f"≥ {field.low:g}"
        lines.append(
            f"| `{field.key}` | {name} | {', '.join(field.labels) or '-'} | {field.cadence} | "
            f"{', '.join(_query(query) for query in field.queries)} | {field.dcgm or '-'} | {bounds} |"
        )
    return "\n".join(lines) + "\n"
