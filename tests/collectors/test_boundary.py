"""The collector boundary: one collector cannot stop the rest, and failure is absence with a reason."""

import pytest

from coldaisle.collectors.boundary import FAILURES, LAST_SUCCESS, SUCCESS, Boundary, Result
from coldaisle.domain.clock import FakeClock
from coldaisle.domain.errors import ColdaisleError
from coldaisle.domain.health import State
from coldaisle.metrics.families import Family, Kind, Sample

VALUE = Family("dgx_test", Kind.GAUGE, "A test.")


class Fixed:
    families = (VALUE,)

    def __init__(self, name, result):
        self.name = name
        self.result = result

    def collect(self, now):
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def run(*collectors):
    clock = FakeClock()
    boundary = Boundary(collectors, clock, clock.monotonic)
    samples = boundary.run(clock.monotonic())
    return boundary, {(sample.family, sample.labels): sample.value for sample in samples}


def test_good_collector():
    """A complete result is published with success and its time."""
    boundary, samples = run(Fixed("a", Result([Sample(VALUE, (), 7)])))
    assert samples[VALUE, ()] == 7
    assert samples[SUCCESS, ("a",)] == 1
    assert samples[LAST_SUCCESS, ("a",)] == 1_800_000_000
    assert boundary.health()[0].state is State.OK


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ColdaisleError("no disk", remedy="buy one"), "no disk"), (KeyError("x"), "KeyError: 'x'")],
)
def test_failing_collector_leaves_the_rest(error, reason):
    """A collector that raises publishes nothing; the next one is not touched."""
    boundary, samples = run(Fixed("bad", error), Fixed("good", Result([Sample(VALUE, (), 1)])))
    assert samples[VALUE, ()] == 1
    assert samples[SUCCESS, ("bad",)] == 0
    assert samples[FAILURES, ("bad",)] == 1
    assert (LAST_SUCCESS, ("bad",)) not in samples
    assert (boundary.health()[0].state, boundary.health()[0].reason) == (State.FAILED, reason)


def test_partial_result_is_degraded():
    """A partial result is published and named as partial."""
    boundary, samples = run(Fixed("a", Result([Sample(VALUE, (), 1)], "GPU 3 lost", "drain")))
    assert samples[VALUE, ()] == 1
    assert samples[SUCCESS, ("a",)] == 0
    assert boundary.health()[0][:4] == ("a", State.DEGRADED, "GPU 3 lost", "drain")


def test_off_is_no_failure():
    """What is switched off counts as neither success's absence nor failure."""
    boundary, samples = run(Fixed("a", Result([], off=True)))
    assert samples[SUCCESS, ("a",)] == 1
    assert boundary.health()[0].state is State.OFF


def test_duplicate_names_are_refused():
    """Two collectors of one name would overwrite each other's health."""
    with pytest.raises(ValueError, match="share a name"):
        run(Fixed("a", Result([])), Fixed("a", Result([])))
