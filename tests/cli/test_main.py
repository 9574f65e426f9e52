"""Commands in this process, with the agent's composition roots replaced."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from coldaisle.app.options import SIMULATED_PRODUCTS, AbsentReading, BindError, Collected
from coldaisle.app.plain import plain
from coldaisle.cli import arguments, units
from coldaisle.cli.main import main
from coldaisle.cli.node_table import node_table
from coldaisle.domain.errors import ConfigError, PermissionDenied
from coldaisle.domain.health import State
from coldaisle.domain.node import HealthReport

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.fixture
def roots(monkeypatch, node):
    """`coldaisle.app.main` and `once` that keep the options they get."""
    seen = []
    run, once = ModuleType("coldaisle.app.main"), ModuleType("coldaisle.app.once")
    run.run = lambda options: seen.append(options) or 0
    health = HealthReport(State.DEGRADED, serving=True, reason="GPU 3 is lost", parts=())
    absent = (AbsentReading("3", "power", "lost", "fell off the bus"),)
    once.collect = lambda options: seen.append(options) or Collected(node, health, b"a 1\n", b"a 1\n# EOF\n", absent)
    for name, module in (("main", run), ("once", once)):
        monkeypatch.setitem(sys.modules, f"coldaisle.app.{name}", module)
        monkeypatch.setattr(f"coldaisle.app.{name}", module, raising=False)
    roots = ModuleType("roots")
    roots.seen, roots.run, roots.once = seen, run, once
    return roots


def test_run_gets_its_options(roots, tmp_path, monkeypatch):
    """Every flag of run arrives, over the file's values, with paths made absolute."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text("mode: observe\nlog: {level: debug}\n")
    (tmp_path / "s.yaml").touch()
    words = "run --config c.yaml --simulate dgx-h200 --gpus 4 --scenario s.yaml --seed 7 --record r --mode advise"
    words += " --web.listen-address :0 --web.listen-address 127.0.0.1:0 --web.config.file w.yml --log.format json"
    assert main(words.split()) == 0
    options = roots.seen[0]
    assert options.config_path == tmp_path / "c.yaml"
    assert (options.simulate, options.gpus, options.seed) == ("dgx-h200", 4, 7)
    assert (options.scenario, options.record) == (tmp_path / "s.yaml", tmp_path / "r")
    assert options.web_config_file == options.config.web.config_file == tmp_path / "w.yml"
    assert options.config.web.listen_addresses == (":0", "127.0.0.1:0")
    assert (options.config.mode, options.config.log.level, options.config.log.format) == ("advise", "debug", "json")
    assert set(options.flags) == {"mode", "web.listen_addresses", "web.config_file", "log.format"}


def test_run_alone(roots):
    """Without anything, run has the defaults and no file."""
    assert main(["run"]) == 0
    options = roots.seen[0]
    assert (options.config_path, options.simulate, options.replay, options.flags) == (None, None, None, {})


def test_collect_formats(roots, capsys):
    """Collect in a pipe is the exposition; each format is what it says; --explain adds what is absent."""
    assert main(["collect"]) == 0
    assert capsys.readouterr().out == "a 1\n"
    assert main(["collect", "--format", "openmetrics", "--explain"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "a 1\n# EOF\n"
    assert "power of GPU 3: lost (fell off the bus)" in captured.err
    assert main(["collect", "--explain"]) == 0
    assert capsys.readouterr().out == "a 1\n# absent: power of GPU 3: lost (fell off the bus)\n"
    assert main(["collect", "--format", "json", "--explain"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["node"]["gpus"][1]["power"] is None
    assert answer["absent"][0]["reason"] == "lost"
    assert main(["collect", "--format", "table", "--explain"]) == 0
    assert "fell off the bus" in capsys.readouterr().out


def test_collect_fails_with_the_node(roots, node, capsys):
    """Collect ends in 1 if no GPU source works, and still prints what there is."""
    health = HealthReport(State.FAILED, serving=False, reason="no driver", parts=())
    roots.once.collect = lambda options: Collected(node, health, b"a 1\n", b"")
    assert main(["collect"]) == 1
    assert capsys.readouterr().out == "a 1\n"


def test_replay_is_collect_on_a_recording(roots, tmp_path, capsys):
    """Replay FILE collects from the recording."""
    (tmp_path / "r").touch()
    assert main(["replay", str(tmp_path / "r"), "--format", "text"]) == 0
    assert roots.seen[0].replay == tmp_path / "r"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError(["a:1: x", "a:2: y"]), 3),
        (BindError("port 10980 is taken"), 4),
        (PermissionDenied("no"), 6),
        (PermissionError(13, "Permission denied", "/x"), 6),
        (OSError(28, "No space left on device", "/x"), 1),
        (ZeroDivisionError("oops"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(roots, capsys, error, code):
    """Each kind of error has its exit code and never a traceback."""

    def fail(options):
        raise error

    roots.run.run = fail
    assert main(["run"]) == code
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert len(err.splitlines()) == (0 if code == 130 else 2 if code == 3 else 1)
    assert all(line.startswith("coldaisle: error: ") for line in err.splitlines())


def test_a_traceback_for_developers(roots, monkeypatch):
    """With COLDAISLE_TRACEBACK a bug is raised as it is."""

    def fail(options):
        raise ZeroDivisionError

    roots.run.run = fail
    monkeypatch.setenv("COLDAISLE_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        main(["run"])


def test_table(node):
    """The table has human units, dashes for what is absent, and what is wrong with its remedy."""
    assert node_table(plain(node)) == (Path(__file__).parent / "node_table.txt").read_text(encoding="utf-8")


def test_colour(node):
    """Colour marks states only, and moves no column."""
    painted = node_table(plain(node), colour=True)
    assert "\x1b[31mlost\x1b[0m" in painted
    assert re.sub(r"\x1b\[\d+m", "", painted) == node_table(plain(node))


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**41, "2.0 TiB"), (2**51, "2048.0 TiB")],
)
def test_sizes(count, text):
    """Sizes are in the unit that leaves one or more."""
    assert units.size(count) == text


def test_products():
    """The names that can be typed are those that can be simulated."""
    assert arguments.SIMULATED_PRODUCTS == SIMULATED_PRODUCTS


def test_nothing_slow_is_imported_for_help():
    """The parser alone imports neither pydantic nor asyncio: help and version are instant."""
    script = "import sys, coldaisle.cli.main as m; m.arguments.build(); print('pydantic' in sys.modules, 'asyncio' in sys.modules)"
    root = Path(__file__).parents[2] / "agent"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(root)}
    )
    assert done.stdout == "False False\n"


def test_documentation():
    """docs/cli.md has every command, every flag and every exit code."""
    text = DOCS.read_text(encoding="utf-8")
    parser = arguments.build()
    commands = next(action for action in parser._actions if action.dest == "command").choices
    for name, command in commands.items():
        assert f"### `coldaisle {name}" in text
        section = text.split(f"### `coldaisle {name}")[1].split("\n### ")[0]
        for action in command._actions:
            for flag in action.option_strings:
                assert flag in ("-h", "--help") or flag in section or flag in text.split("## Vendor flags")[1], (
                    name,
                    flag,
                )
    assert re.findall(r"^\| (\d+) \|", text, re.MULTILINE) == ["0", "1", "2", "3", "4", "5", "6", "130"]
