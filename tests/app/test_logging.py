"""Log lines in each format."""

import io
import json
import logging
import os

import pytest
import structlog

from coldaisle.app.logging import configure, resolve
from coldaisle.config.models import LogFormat, LogLevel


@pytest.fixture(autouse=True)
def _restored():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def stream():
    return io.StringIO()


def log_something():
    log = structlog.get_logger("coldaisle")
    log.debug("hidden")
    log.info("gpu lost", gpu=3, reason="fell off the bus")
    try:
        int("two\nlines")
    except ValueError:
        log.exception("broken")
    logging.getLogger("some.library").warning("careful %s", "now")
    logging.getLogger("apscheduler.executors.default").info("Running job")


def test_json(stream):
    """JSON is one object a line, also for libraries; jobs' chatter and lower levels are left out."""
    configure(LogLevel.INFO, LogFormat.JSON, stream)
    log_something()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["gpu lost", "broken", "careful now"]
    assert lines[0]["gpu"] == 3
    assert lines[0]["level"] == "info"
    assert lines[0]["timestamp"].endswith("Z")
    assert "ValueError" in lines[1]["exception"]


def test_journal(stream):
    """Every journal line, those of tracebacks too, begins with its priority; time is the journal's own."""
    configure(LogLevel.INFO, LogFormat.JOURNAL, stream)
    log_something()
    lines = stream.getvalue().splitlines()
    assert lines[0] == '<6>gpu lost gpu=3 reason="fell off the bus"'
    assert lines[1] == "<3>broken"
    assert "<3>Traceback (most recent call last):" in lines
    assert lines[-1] == "<4>careful now"
    assert all(line[0] == "<" and line[2] == ">" for line in lines)


def test_console(stream):
    """Off a terminal the console format has no colour codes."""
    configure(LogLevel.DEBUG, LogFormat.CONSOLE, stream)
    log_something()
    assert "gpu lost" in stream.getvalue()
    assert "hidden" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_again(stream):
    """Configuring again, after a reload, replaces what was there: no line comes twice."""
    configure(LogLevel.INFO, LogFormat.JSON, io.StringIO())
    configure(LogLevel.ERROR, LogFormat.JSON, stream)
    log_something()
    assert len(stream.getvalue().splitlines()) == 1


def test_auto(monkeypatch, tmp_path, stream):
    """`auto` is the journal's format exactly if systemd reads this very stream."""
    with (tmp_path / "log").open("w") as file:
        found = os.fstat(file.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        assert resolve(LogFormat.AUTO, file) is LogFormat.JOURNAL
        assert resolve(LogFormat.JSON, file) is LogFormat.JSON
        monkeypatch.setenv("JOURNAL_STREAM", "1:2")
        assert resolve(LogFormat.AUTO, file) is LogFormat.CONSOLE
    assert resolve(LogFormat.AUTO, stream) is LogFormat.CONSOLE
