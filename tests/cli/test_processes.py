"""The real program, as a shell runs it: exit codes, one line per error, nothing where it does not belong."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "config" / "cases"


def coldaisle(*words, **kwargs):
    """Run the program and return code, standard output and standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "coldaisle", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "agent"), "NO_COLOR": "1"},
        **kwargs,
    )
    return done.returncode, done.stdout, done.stderr


def is_one_error(text):
    return re.fullmatch(r"coldaisle: error: [^\n]+\n", text) is not None


def test_version():
    """0: --version prints name and version and nothing else."""
    code, out, err = coldaisle("--version")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"coldaisle \d+\.\d+\.\d+\n", out)


@pytest.mark.parametrize(
    "command", ["run", "collect", "check-config", "release", "resume", "status", "record", "replay"]
)
def test_help(command):
    """0: every command has help."""
    code, out, err = coldaisle(command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: coldaisle {command}")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["dance"],
        ["run", "--simulate", "dgx-1"],
        ["run", "--gpus", "4"],
        ["run", "--simulate", "dgx-h200", "--gpus", "0"],
        ["run", "--simulate", "dgx-h200", "--replay", "x"],
        ["run", "--mode", "loud"],
        ["run", "--conf", "x"],
        ["collect", "--format", "xml"],
        ["record"],
        ["record", "-o", "x", "--duration", "soon"],
        ["replay"],
        ["check-config"],
    ],
)
def test_usage(words):
    """2: a command line that makes no sense is one line that points to the help."""
    code, out, err = coldaisle(*words)
    assert (code, out) == (2, "")
    assert is_one_error(err)
    assert "--help" in err


def test_a_good_configuration():
    """0: check-config says ok."""
    path = CASES / "empty_sections.good.yaml"
    assert coldaisle("check-config", path) == (0, f"{path}: ok\n", "")


def test_a_wrong_web_configuration(tmp_path):
    """3: the web configuration is checked too, whether the command line or the configuration names it."""
    web = tmp_path / "web.yml"
    web.write_text("tls_server_confg: {}\n")
    path = tmp_path / "config.yaml"
    path.write_text(f"web: {{config_file: {web}}}\n")
    code, out, err = coldaisle("check-config", path)
    assert (code, out) == (3, "")
    assert err.startswith(f"coldaisle: error: {web}:1: ")
    assert coldaisle("check-config", CASES / "empty.good.yaml", "--web.config.file", web) == (code, out, err)
    web.write_text("")
    assert coldaisle("check-config", path) == (0, f"{path}: ok\n{web}: ok\n", "")


@pytest.mark.parametrize("command", [["check-config"], ["run", "--config"], ["collect", "--config"]])
def test_a_wrong_configuration(command):
    """3: every problem is a line with file, line number and remedy, whichever command reads the file."""
    path = CASES / "many_at_once.bad.yaml"
    code, out, err = coldaisle(*command, path)
    assert (code, out) == (3, "")
    assert err == "".join(
        f"coldaisle: error: {CASES}/{line}\n" for line in (CASES / "many_at_once.expected").read_text().splitlines()
    )


def test_a_wrong_flag():
    """3: a flag's value that the configuration refuses names the flag."""
    code, _, err = coldaisle("run", "--web.listen-address", "nowhere")
    assert code == 3
    assert is_one_error(err)
    assert "--web.listen-address: " in err
    code, _, err = coldaisle("run", "--mode", "enforce")
    assert code == 3
    assert "actuator" in err


def test_files_that_are_not_there(tmp_path):
    """1: a scenario or recording that cannot be read is said before anything starts."""
    for words in (["run", "--simulate", "dgx-h200", "--scenario"], ["replay"]):
        code, out, err = coldaisle(*words, tmp_path / "absent")
        assert (code, out) == (1, "")
        assert is_one_error(err)
        assert "absent" in err


@pytest.mark.parametrize("words", [["status"], ["release"], ["resume"], ["record", "-o", "x"]])
def test_no_agent(words, tmp_path):
    """5: commands for a running agent say that none answers."""
    code, out, err = coldaisle(*words, "--socket", tmp_path / "control.sock")
    assert (code, out) == (5, "")
    assert is_one_error(err)
    assert "coldaisle run" in err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")
def test_no_permission(agent, tmp_path):
    """6: a user outside the group may not use the socket."""
    for directory in (tmp_path, *tmp_path.parents[:3]):
        if str(directory).startswith("/tmp/pytest"):
            directory.chmod(0o755)
    script = (
        "import sys; from coldaisle.cli.main import main; import os; os.setgroups([]); os.setgid(65534);"
        f"os.setuid(65534); sys.exit(main(['status', '--socket', {str(agent.path)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "agent")},
    )
    assert done.returncode == 6
    assert is_one_error(done.stderr)


def test_commands_to_an_agent(agent, tmp_path):
    """0 and 1: answers and refusals of a running agent."""
    code, out, err = coldaisle("release", "--socket", agent.path)
    assert (code, out, err) == (0, "released: the agent holds no vendor handle\n", "")
    code, out, err = coldaisle("resume", "--socket", agent.path)
    assert (code, out) == (1, "")
    assert err == "coldaisle: error: nothing is released; run coldaisle release first\n"
    code, out, _ = coldaisle("record", "-o", "answers", "--duration", "2m", "--socket", agent.path, cwd=tmp_path)
    assert (code, out) == (0, "recorded 12 calls\n")
    assert agent.requests[-1] == {"op": "record", "path": str(tmp_path / "answers"), "duration": 120.0}


def test_status_in_a_pipe(agent):
    """0: status in a pipe is plain aligned text without a single escape code."""
    code, out, err = coldaisle("status", "--socket", agent.path)
    assert (code, err) == (0, "")
    assert "dgx-07" in out
    assert "\x1b" not in out


def test_a_reader_that_has_seen_enough(agent):
    """A closed pipe ends the program quietly."""
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-m", "coldaisle", "status", "--format", "json", "--socket", str(agent.path)],
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "agent")},
    )
    os.close(write)
    assert (process.returncode, process.stderr) == (0, b"")
