"""docs/configuration.md is the grammar of what the models accept, no more and no less."""

import re
from pathlib import Path

import pytest

from coldaisle.config import document
from coldaisle.config.models import Config, keys

TEXT = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
GRAMMAR = TEXT.split("## Grammar")[1].split("```yaml\n")[1].split("```")[0]


def documented():
    """Dotted key to its line in the grammar."""
    found, sections = {}, []
    for line in GRAMMAR.splitlines():
        if match := re.match(r"( *)(\w+):(.*)", line):
            depth = len(match[1]) // 2
            sections = [*sections[:depth], match[2]]
            if match[3].strip():
                found[".".join(sections)] = match[3]
    return found


def test_the_grammar_has_every_key_in_order():
    """The grammar lists exactly the models' keys, in the models' order."""
    assert list(documented()) == [key.name for key in keys()]


@pytest.mark.parametrize("key", list(keys()), ids=lambda key: key.name)
def test_a_key_is_explained(key):
    """Each key has a paragraph, says in the grammar whether it needs a restart, and gives its true default."""
    assert f"### `{key.name}`\n" in TEXT
    line = documented()[key.name]
    assert line.rstrip().endswith("; restart") == key.restart
    match key.default:
        case None:
            assert "default:" in line
        case ():
            assert "default []" in line
        case (first,):
            assert f'default ["{first}"]' in line
        case bool():
            assert f"default {str(key.default).lower()}" in line
        case float():
            assert f"default {key.default:g}s" in line
        case _:
            assert f"default {key.default}" in line


def test_nothing_is_explained_that_is_no_key():
    """No paragraph is left over from a key that is gone."""
    assert set(re.findall(r"^### `(.+)`$", TEXT, re.MULTILINE)) == {key.name for key in keys()}


def test_the_example_is_valid():
    """The example at the end loads."""
    example = TEXT.split("## Example")[1].split("```yaml\n")[1].split("```")[0]
    assert Config.model_validate(document.parse(example).value).node.expected_gpus == 8
