"""Order of precedence, and files that cannot be read."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldaisle.config import document
from coldaisle.config.loader import FLAGS, load
from coldaisle.config.models import Config, keys
from coldaisle.domain.errors import ConfigError


def test_defaults_without_a_file():
    """No file and no flags give the defaults."""
    assert load(None) == Config()


def test_flags_over_file_over_defaults(tmp_path):
    """A flag beats the file, the file beats the default, section by section."""
    path = tmp_path / "config.yaml"
    path.write_text('mode: advise\nlog: {level: debug, format: json}\nweb: {listen_addresses: [":1"]}\n')
    config = load(path, {"log.level": "error", "web.listen_addresses": [":2", ":3"]})
    assert config.mode == "advise"
    assert (config.log.level, config.log.format) == ("error", "json")
    assert config.web.listen_addresses == (":2", ":3")
    assert config.gpu.interval == 1.0


def test_a_wrong_flag_is_named_as_a_flag():
    """A flag's problem names the flag, not a line of a file."""
    with pytest.raises(ConfigError) as caught:
        load(None, {"mode": "loud", "web.listen_addresses": ["nowhere"]})
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["--mode", "--web.listen-address"]


def test_every_flag_is_a_key():
    """The flags of the command line override keys that exist."""
    assert set(FLAGS) <= {key.name for key in keys()}


def test_a_missing_file(tmp_path):
    """A path that leads nowhere is said plainly."""
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "absent.yaml")


def test_a_directory(tmp_path):
    """So is a directory."""
    with pytest.raises(ConfigError, match="is a directory"):
        load(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file(tmp_path):
    """So is a file that may not be read."""
    path = tmp_path / "config.yaml"
    path.touch(0o000)
    with pytest.raises(ConfigError, match="permission denied"):
        load(path)


def test_a_huge_file(tmp_path):
    """A file that is far too large is refused before it is parsed."""
    path = tmp_path / "config.yaml"
    path.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        load(path)


def test_an_alias_bomb(tmp_path):
    """Aliases that would unfold to millions of entries are refused at once."""
    path = tmp_path / "config.yaml"
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    path.write_text("\n".join(lines))
    with pytest.raises(ConfigError, match="far more entries"):
        load(path)


def test_deep_nesting(tmp_path):
    """Nesting beyond all reason is a problem of the file, not of the agent."""
    path = tmp_path / "config.yaml"
    path.write_text("[" * 5000)
    with pytest.raises(ConfigError):
        load(path)


def test_yaml_1_2(tmp_path):
    """Values mean what YAML 1.2 says: `on` is text and 012 is twelve."""
    assert document.parse("a: on\nb: 012\nc: 1:30\n").value == {"a": "on", "b": 12, "c": "1:30"}


@given(st.one_of(st.text(), st.text(alphabet="ab:-[]{}&*!<>|#\"'\n \t,?%@")))
def test_any_text_is_answered(text):
    """Whatever the file holds, parsing gives a document or problems with a line each, and never raises."""
    parsed = document.parse(text)
    assert parsed.problems or parsed.value is None or parsed.lines
    assert all(problem.line >= 1 and problem.message for problem in parsed.problems)
