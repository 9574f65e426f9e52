"""Scenario files: strict, told by line, and played as simulated time passes."""

import io
from pathlib import Path

import pytest

import coldaisle.simulation
from coldaisle.domain.errors import ConfigError
from coldaisle.simulation.machine import Writer
from coldaisle.simulation.node import Node
from coldaisle.simulation.profiles import H200
from coldaisle.simulation.scenario import Player, load_scenario

SHIPPED = sorted((Path(coldaisle.simulation.__file__).parent / "scenarios").glob("*.yaml"))


def write(tmp_path, text):
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    return path


def play(tmp_path, scenario, gpus=8):
    node = Node(H200, gpus, 0, Writer(str(tmp_path), gpus, 2), io.StringIO(), lambda: 0.0)
    node.script = Player(scenario, node).play
    return node


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_scenarios_play_to_their_end(tmp_path, path):
    """Every scenario that ships is valid and runs through on eight GPUs."""
    scenario = load_scenario(path, 8)
    node = play(tmp_path, scenario)
    node.advance(max(event.at for event in scenario.events) + 1)
    assert scenario.events


def test_three_ship():
    """The examples that the documentation names are there."""
    assert [path.stem for path in SHIPPED] == ["bad-day", "healthy", "hot-afternoon"]


def test_loads_faults_and_inlet_happen_when_they_should(tmp_path):
    """Loads apply from the start, faults begin at their time and end after theirs, clears and inlet take effect."""
    text = (
        "inlet: 30\n"
        'loads: {"0-1": train_fp32}\n'
        "events:\n"
        "  - {at: 20s, clear: all, gpu: 1}\n"
        "  - {at: 5s, fault: lost, gpu: 0, for: 10s}\n"
        "  - {at: 6s, fault: hang, gpus: 1-2}\n"
        '  - {at: 7s, load: idle, gpus: "3"}\n'
        "  - {at: 8s, inlet: 20}\n"
    )
    node = play(tmp_path, load_scenario(write(tmp_path, text), 4), 4)
    node.advance(4)
    assert node.state()["gpus"][1]["load"] == "train_fp32"
    assert node.state()["faults"] == []
    node.advance(5)
    assert [(fault["kind"], fault["gpu"]) for fault in node.state()["faults"]] == [
        ("lost", 0),
        ("hang", 1),
        ("hang", 2),
    ]
    assert node.boards[0].error == 15
    assert node.state()["gpus"][3]["load"] == "idle"
    assert node.base_inlet == 20
    node.advance(7)
    assert node.boards[0].error == 0
    node.advance(5)
    assert [fault["gpu"] for fault in node.state()["faults"]] == [2]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("events:\n  - {at: 30s, fault: lots, gpu: 1}\n", 2, "no fault is called"),
        ("events:\n  - at: 30s\n    fault: lost\n", 3, "needs a GPU"),
        ("events:\n  - at: 30\n    fault: lost\n    gpu: 1\n", 2, "must be a duration"),
        ("events:\n  - {fault: lost, gpu: 1}\n", 2, "must be a duration"),
        ("events:\n  - {at: 3s, fault: lost, gpu: 8}\n", 2, "not there"),
        ("events:\n  - {at: 3s, fault: hot_gpu, gpu: 1, factr: 2}\n", 2, 'knows no "factr"'),
        ("events:\n  - {at: 3s, fault: lost, load: idle}\n", 2, "exactly one"),
        ("events:\n  - {at: 3s, load: idle, for: 3s}\n", 2, "only a fault lasts"),
        ("events:\n  - {at: 3s, load: ironing}\n", 2, "no load is called"),
        ("events:\n  - {at: 3s, clear: dust}\n", 2, "write all"),
        ("events:\n  - {at: 3s, clear: all, watts: 3}\n", 2, 'knows no "watts"'),
        ("events:\n  - {at: 3s, fault: lost, gpu: 1, gpus: 0-2}\n", 2, "remove one"),
        ("events:\n  - lost\n", 2, "an event is a mapping"),
        ("events: {}\n", 1, "must be a list"),
        ("inlet: hot\n", 1, "degrees Celsius"),
        ("speed: 3\n", 1, 'knows no "speed"'),
        ('loads: {"0-9": idle}\n', 1, "not there"),
        ("loads:\n  '1': ironing\n", 2, "no load is called"),
        ("loads: idle\n", 1, "mapping of GPUs"),
        ("- 1\n", 1, "is a mapping"),
        ("inlet: 20\ninlet: 21\n", 2, "already set"),
        ("a: [\n", 2, "not valid YAML"),
        ("events:\n  - {at: 3s, load: [idle]}\n", 2, "no load is called"),
        ("events:\n  - {at: 3s, clear: {all: 1}}\n", 2, "write all"),
        ("loads:\n  '1': [idle]\n", 2, "no load is called"),
        ("events:\n  - {at: 3s, fault: hot_gpu, gpu: 1, factor: [2]}\n", 2, "must be a number"),
        ("events:\n  - {at: 3s, fault: hot_gpu, gpu: 1, factor: }\n", 2, "must be a number"),
        ("events:\n  - {at: 3s, fault: hot_gpu, gpu: 1, factor: .nan}\n", 2, "from 0.1 to 20"),
        ("events:\n  - {at: 3s, fault: hot_memory, gpu: 1, celsius: .inf}\n", 2, "from -50 to 150"),
        ("events:\n  - {at: 3s, fault: glitch, gpu: 1, reads: 1e300}\n", 2, "from 1 to 999999"),
        ("events:\n  - {at: 3s, fault: bmc_cap, watts: -900}\n", 2, "from 1 to 5000"),
        ("events:\n  - {at: 3s, fault: error, gpu: 1, code: 2.5}\n", 2, "a whole number"),
        ("events:\n  - {at: 3s, fault: lost, gpus: 0-999999999999}\n", 2, "not there"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path, text, line, words):
    """Each mistake is one line with file, line number and what to write instead."""
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_scenario(path, 8)
    assert any(problem.startswith(f"{path}:{line}: ") and words in problem for problem in caught.value.problems)


def test_empty_and_absent_files(tmp_path):
    """An empty file is a node left to its schedule; one that is not there is one clear line."""
    assert load_scenario(write(tmp_path, ""), 8).events == ()
    with pytest.raises(ConfigError, match="No such file"):
        load_scenario(tmp_path / "none.yaml", 8)


def test_the_process_refuses_a_wrong_scenario(simulator, tmp_path):
    """The simulator ends with 3 and the line on stderr before it says ready."""
    path = write(tmp_path, "speed: 3\n")
    process = simulator("--profile", "dgx-h200", "--scenario", str(path))
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (3, "")
    assert err.startswith(f"coldaisle: error: {path}:1: ")
    assert "Traceback" not in err
