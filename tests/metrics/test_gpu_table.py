"""The GPU table: every value has an age, and every absence has a reason."""

import pytest

from coldaisle.domain.gpu import GpuIdentity, GpuState
from coldaisle.domain.readings import Absence, Reading, Source
from coldaisle.metrics.gpu_fields import BY_CADENCE, GPU_FIELDS, INTERVALS, POSITION, reasons_of
from coldaisle.metrics.gpu_table import GpuTable


@pytest.fixture
def table():
    table = GpuTable()
    table.identify(GpuIdentity(0, "GPU-0"), {"sm_active": "gpm"})
    table.set_state(0, GpuState.OK)
    return table


def put(table, cadence, taken_at, value=1.0):
    table.update(0, cadence, taken_at, [value] * len(BY_CADENCE[cadence]))


def test_reading_has_source_and_time(table):
    """A reading says when and by whom."""
    put(table, "fast", 10.0, 0.5)
    assert table.reading(table.gpus[0], "sm_active", 10.5) == Reading(0.5, 10.0, Source.GPM)


@pytest.mark.parametrize("cadence", ["fast", "brisk", "medium", "slow"])
def test_each_cadence_lives_three_of_its_own_intervals(table, cadence):
    """A slow value is not stale because a fast one would be."""
    put(table, cadence, 100.0)
    key = BY_CADENCE[cadence][0].key
    life = 3 * INTERVALS[cadence]
    assert table.value(table.gpus[0], key, 100 + life) == 1.0
    assert table.value(table.gpus[0], key, 100.1 + life) is None
    assert table.reading(table.gpus[0], key, 100.1 + life) is Absence.STALE


def test_static_values_do_not_age(table):
    """What was read once at start stays while the GPU does."""
    put(table, "static", 0.0, 700.0)
    assert table.value(table.gpus[0], "power_limit_max", 1e6) == 700.0


@pytest.mark.parametrize(
    ("state", "absence"),
    [(GpuState.LOST, Absence.LOST), (GpuState.RESET_REQUIRED, Absence.RESET_REQUIRED), (GpuState.HUNG, Absence.QUARANTINED),
     (GpuState.CRASHED, Absence.QUARANTINED), (GpuState.FAILING, Absence.NO_DATA)],
)
def test_unusable_states_forget_at_once(table, state, absence):
    """Errors make values absent at once, with the state as reason."""
    put(table, "fast", 10.0)
    table.set_state(0, state)
    assert table.reading(table.gpus[0], "power", 10.1) is absence


def test_reason_of_one_absent_value(table):
    """A value that alone is missing tells its own reason."""
    table.update(0, "fast", 10.0, [None] * len(BY_CADENCE["fast"]))
    table.gpus[0].absent["fast"] = {"dram_active": "nan"}
    assert table.reading(table.gpus[0], "dram_active", 10.1) is Absence.NAN
    assert table.reading(table.gpus[0], "power", 10.1) is Absence.NO_DATA


def test_wrong_length_is_refused(table):
    """A frame of another catalogue version is not read at shifted places."""
    table.update(0, "fast", 10.0, [1.0])
    assert table.value(table.gpus[0], "power", 10.0) is None


def test_catalogue_is_consistent():
    """Keys are unique, every field has a way to be asked, bounds are in order, and labels fit their family."""
    assert len({field.key for field in GPU_FIELDS}) == len(GPU_FIELDS) == len(POSITION)
    for field in GPU_FIELDS:
        assert field.queries, field.key
        assert field.low < field.high, field.key
        if field.family is not None:
            assert len(field.family.labels) == 2 + len(field.labels), field.key
    series = [(field.family.name, field.labels) for field in GPU_FIELDS if field.family]
    assert len(set(series)) == len(series)


def test_reasons_by_name():
    """Known bits have names, unknown ones are not hidden."""
    assert reasons_of(0x48) == ("hw_slowdown", "hw_thermal")
    assert reasons_of(0x1000) == ("unknown_0x1000",)
    assert reasons_of(0) == ()
