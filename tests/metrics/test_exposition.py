import gzip
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from coldaisle.metrics.exposition import Renderer
from coldaisle.metrics.families import Family, HistogramValue, Kind, Sample

TEMPERATURE = Family(
    "dgx_gpu_temperature_celsius", Kind.GAUGE, 'Core "temperature".\nFrom \\NVML.', ("gpu", "sensor"), "celsius"
)
ENERGY = Family("dgx_gpu_energy_joules_total", Kind.COUNTER, "Energy since the driver loaded.", ("gpu",), "joules")
INFO = Family("dgx_node_info", Kind.INFO, "The node.", ("hostname",))
STATE = Family("dgx_gpu_state", Kind.STATESET, "State of a GPU.", ("gpu", "state"))
NAMED_STATE = Family("dgx_mode", Kind.STATESET, "Mode of the agent.", ("dgx_mode",))
SECONDS = Family("dgx_tick_seconds", Kind.HISTOGRAM, "Duration of a tick.", ("job",), "seconds")
ALL = (INFO, TEMPERATURE, ENERGY, STATE, NAMED_STATE, SECONDS)


def samples():
    return [
        Sample(SECONDS, ("tick",), HistogramValue((0.1, 1.0), (3, 2, 1), 4.5)),
        Sample(TEMPERATURE, ("1", "core"), 41.5),
        Sample(TEMPERATURE, ("0", "core"), 40),
        Sample(ENERGY, ("0",), 123_456_789_012_345),
        Sample(INFO, ("dgx01",), 1),
        Sample(STATE, ("0", "ok"), 1),
        Sample(STATE, ("0", "lost"), 0),
        Sample(NAMED_STATE, ("observe",), True),
    ]


def parsed(families):
    return {
        sample.name + str(sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_golden_text():
    """Families come in declared order, samples in the order given, and the 0.0.4 text is exactly this."""
    assert Renderer(ALL).render(samples()).text().decode() == (
        "# HELP dgx_node_info The node.\n"
        "# TYPE dgx_node_info gauge\n"
        'dgx_node_info{hostname="dgx01"} 1\n'
        '# HELP dgx_gpu_temperature_celsius Core "temperature".\\nFrom \\\\NVML.\n'
        "# TYPE dgx_gpu_temperature_celsius gauge\n"
        'dgx_gpu_temperature_celsius{gpu="1",sensor="core"} 41.5\n'
        'dgx_gpu_temperature_celsius{gpu="0",sensor="core"} 40\n'
        "# HELP dgx_gpu_energy_joules_total Energy since the driver loaded.\n"
        "# TYPE dgx_gpu_energy_joules_total counter\n"
        'dgx_gpu_energy_joules_total{gpu="0"} 123456789012345\n'
        "# HELP dgx_gpu_state State of a GPU.\n"
        "# TYPE dgx_gpu_state gauge\n"
        'dgx_gpu_state{gpu="0",state="ok"} 1\n'
        'dgx_gpu_state{gpu="0",state="lost"} 0\n'
        "# HELP dgx_mode Mode of the agent.\n"
        "# TYPE dgx_mode gauge\n"
        'dgx_mode{dgx_mode="observe"} 1\n'
        "# HELP dgx_tick_seconds Duration of a tick.\n"
        "# TYPE dgx_tick_seconds histogram\n"
        'dgx_tick_seconds_bucket{job="tick",le="0.1"} 3\n'
        'dgx_tick_seconds_bucket{job="tick",le="1.0"} 5\n'
        'dgx_tick_seconds_bucket{job="tick",le="+Inf"} 6\n'
        'dgx_tick_seconds_count{job="tick"} 6\n'
        'dgx_tick_seconds_sum{job="tick"} 4.5\n'
    )


def test_openmetrics_metadata():
    """OpenMetrics names counters and infos without their suffix, gives units and ends in EOF; the parser agrees."""
    text = Renderer(ALL).render(samples()).openmetrics().decode()
    families = {family.name: family for family in parse_openmetrics(text)}
    assert text.endswith("\n# EOF\n")
    assert {name: (family.type, family.unit) for name, family in families.items()} == {
        "dgx_node": ("info", ""),
        "dgx_gpu_temperature_celsius": ("gauge", "celsius"),
        "dgx_gpu_energy_joules": ("counter", "joules"),
        "dgx_gpu_state": ("gauge", ""),
        "dgx_mode": ("stateset", ""),
        "dgx_tick_seconds": ("histogram", "seconds"),
    }
    assert families["dgx_gpu_temperature_celsius"].documentation == TEMPERATURE.help


def test_both_formats_hold_the_same_series():
    """A scraper gets the same series and values whichever format it asks for."""
    page = Renderer(ALL).render(samples())
    text = parsed(parse_text(page.text().decode()))
    assert text == parsed(parse_openmetrics(page.openmetrics().decode()))
    assert len(text) == 12
    assert page.series == 8


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, HistogramValue((), (1,), 1.0)])
def test_values_that_are_no_reading_are_dropped(value):
    """NaN, infinities and values of the wrong type are absent from the page and counted."""
    page = Renderer(ALL).render([Sample(TEMPERATURE, ("0", "core"), value), Sample(INFO, ("a",), 1)])
    assert b"celsius" not in page.text()
    assert (page.dropped, page.duplicates, page.series) == (1, 0, 1)


@pytest.mark.parametrize(
    "sample",
    [
        Sample(Family("dgx_other", Kind.GAUGE, "Not declared."), (), 1),
        Sample(TEMPERATURE, ("0",), 1),
        Sample(SECONDS, ("a",), 1),
        Sample(SECONDS, ("a",), HistogramValue((1.0,), (1, 2), math.nan)),
        Sample(SECONDS, ("a",), HistogramValue((1.0,), (1,), 1.0)),
    ],
)
def test_samples_that_do_not_fit_are_dropped_and_named(sample):
    """A collector's mistake costs its sample and not the page, and is said in words."""
    page = Renderer(ALL).render([sample])
    assert page.text() == b""
    assert page.openmetrics() == b"# EOF\n"
    assert page.dropped == 1
    assert page.problems[0].startswith(sample.family.name)


def test_duplicates_keep_the_first():
    """Of two samples of one series the second is left out and counted: Prometheus would refuse the whole scrape."""
    page = Renderer(ALL).render([Sample(ENERGY, ("0",), 1), Sample(ENERGY, ("0",), 2), Sample(ENERGY, ("1",), 3)])
    assert page.duplicates == 1
    assert parsed(parse_text(page.text().decode())) == {
        "dgx_gpu_energy_joules_total[('gpu', '0')]": 1,
        "dgx_gpu_energy_joules_total[('gpu', '1')]": 3,
    }


def test_prefixes_are_pruned_with_their_series():
    """The memory of a series ends with it, so that label values that come and go cost nothing for good."""
    renderer = Renderer(ALL)
    for job in range(100):
        renderer.render([Sample(ENERGY, (str(job),), 1), Sample(SECONDS, (str(job),), HistogramValue((), (1,), 1.0))])
    assert renderer.cached == 2
    renderer.render([])
    assert renderer.cached == 0


def test_histogram_may_change_its_edges():
    """Edges that change between two ticks are taken up although the series' prefixes are remembered."""
    renderer = Renderer(ALL)
    renderer.render([Sample(SECONDS, ("a",), HistogramValue((1.0,), (1, 2), 1.0))])
    page = renderer.render([Sample(SECONDS, ("a",), HistogramValue((1.0, 2.0), (1, 2, 3), 1.0))])
    assert b'le="2.0"} 3\n' in page.text()


def test_bodies_are_made_once():
    """Each body is cached, and gzip holds the same bytes."""
    page = Renderer(ALL).render(samples())
    assert page.text() is page.text()
    assert page.openmetrics_gzip() is page.openmetrics_gzip()
    assert gzip.decompress(page.text_gzip()) == page.text()
    assert gzip.decompress(page.openmetrics_gzip()) == page.openmetrics()


def test_lone_surrogates_do_not_fail_the_page():
    """A file name that is not UTF-8 becomes a question mark."""
    page = Renderer(ALL).render([Sample(INFO, ("\udc80x",), 1)])
    assert page.text().endswith(b'{hostname="?x"} 1\n')


@pytest.mark.parametrize(
    "families",
    [
        (ENERGY, Family("dgx_gpu_energy_joules", Kind.GAUGE, "")),
        (Family("dgx_a_total", Kind.GAUGE, ""),),
        (Family("dgx_a", Kind.COUNTER, ""),),
        (Family("dgx_a", Kind.INFO, ""),),
        (Family("dgx_a", Kind.STATESET, ""),),
        (Family("dgx_a", Kind.GAUGE, "", (), "bytes"),),
    ],
)
def test_names_that_contradict_their_type_are_refused(families):
    """A family that a parser would refuse is refused when the agent starts, not at a scrape."""
    with pytest.raises(ValueError, match="dgx_"):
        Renderer(families)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, unique=True), st.floats(allow_nan=False))
def test_label_values_and_numbers_survive_both_formats(values, number):
    """Whatever text a label holds and whatever finite number is measured, both parsers read it back."""
    number = number if math.isfinite(number) else 0.0
    page = Renderer(ALL).render([Sample(TEMPERATURE, (value, "x"), number) for value in values])
    for parse, body in ((parse_text, page.text()), (parse_openmetrics, page.openmetrics())):
        (family,) = parse(body.decode())
        assert [sample.labels["gpu"] for sample in family.samples] == values
        assert {sample.value for sample in family.samples} == {number}
