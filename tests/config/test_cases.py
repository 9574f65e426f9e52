"""Every kind of wrong file gives one clear line per problem; good files load.

`cases/NAME.bad.yaml` has its lines in `cases/NAME.expected`; regenerate those with `UPDATE_EXPECTED=1` and read the diff.
"""

import os
from pathlib import Path

import pytest

from coldaisle.config.loader import load
from coldaisle.domain.errors import ConfigError

CASES = Path(__file__).parent / "cases"
BAD = sorted(CASES.glob("*.bad.yaml"))
GOOD = sorted(CASES.glob("*.good.yaml"))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name)
def test_wrong_file_gives_the_expected_lines(path):
    """A wrong file is refused with exactly the expected problems, each on one line with its line number."""
    with pytest.raises(ConfigError) as caught:
        load(path)
    lines = [problem.replace(f"{CASES}/", "") for problem in caught.value.problems]
    expected = path.with_name(path.name.replace(".bad.yaml", ".expected"))
    if os.environ.get("UPDATE_EXPECTED"):
        expected.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert lines == expected.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.name)
def test_good_file_loads(path):
    """A good file loads without a problem."""
    assert load(path).mode in ("observe", "advise")


def test_there_are_enough_cases():
    """The set covers the twenty kinds of mistake that were asked for, and every case has its expectation."""
    assert len(BAD) >= 20
    assert {path.name.removesuffix(".bad.yaml") for path in BAD} == {path.stem for path in CASES.glob("*.expected")}
