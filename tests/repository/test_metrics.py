"""The names are a contract: pinned, in base units, documented."""

import importlib.util
import re
from pathlib import Path

import pytest

from coldaisle.metrics.families import Kind
from coldaisle.metrics.reference import render

ROOT = Path(__file__).parents[2]
PINNED = Path(__file__).parent / "metric_names.txt"
# What is not in base units, or says more than one thing, in exporters that people complain about.
BAD = re.compile(r"_(percent|milli|mib|mhz|mw|kb|kib|us|ms|ns|minutes|hours|celcius|c|w)(_|$)")


@pytest.fixture(scope="module")
def families():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts/reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.families()


def test_names_are_pinned(families):
    """A name that changes breaks someone's dashboard: the list changes only on purpose (UPDATE_NAMES=1)."""
    import os

    names = "".join(f"{family.name} {family.kind.value} {','.join(family.labels)}\n" for family in sorted(families, key=lambda f: f.name))
    if os.environ.get("UPDATE_NAMES"):
        PINNED.write_text(names)
    assert names == PINNED.read_text()


def test_reference_is_current(families):
    """docs/metrics.md is what the agent publishes (`make reference`)."""
    assert (ROOT / "docs/metrics.md").read_text() == render(families)


def test_naming_rules(families):
    """Prefix, base units, `_total` on counters only, `_info` on info families only, help that is a sentence."""
    for family in families:
        name = family.name
        assert name.startswith(("dgx_", "coldaisle_")), name
        assert not BAD.search(name), name
        assert name.endswith("_total") == (family.kind is Kind.COUNTER), name
        assert name.endswith("_info") == (family.kind is Kind.INFO), name
        assert len(family.help) > 10, name
        if family.unit:
            assert name.removesuffix("_total").endswith(family.unit), name
    assert len({family.name for family in families}) == len(families)
