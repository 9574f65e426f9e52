"""Reloading: atomic, patient with half-written files, and visible."""

import os

import pytest

from coldaisle.config.loader import load
from coldaisle.config.models import keys
from coldaisle.config.reload import Reloader
from coldaisle.domain.clock import FakeClock
from coldaisle.domain.errors import ColdaisleError


class Agent:
    """What a reloader works for: it keeps what was applied and what was said."""

    def __init__(self, path, flags=None):
        self.clock = FakeClock()
        self.applied = []
        self.events = []
        self.refuse = None
        self.reloader = Reloader(
            path, self.apply, self.clock, initial=load(path, flags), flags=flags, emit=self.events.append
        )

    def apply(self, config):
        if self.refuse:
            raise self.refuse
        self.applied.append(config)

    def polls(self, times=3):
        for _ in range(times):
            self.clock.advance(1)
            self.reloader.poll()

    @property
    def state(self):
        return self.reloader.state


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("gpu: {interval: 1s}\n")
    return path


@pytest.fixture
def agent(path):
    return Agent(path)


def test_nothing_changes_without_a_change(agent):
    """An untouched file is never read again."""
    agent.polls(10)
    assert agent.applied == []
    assert (agent.state.successful, agent.state.succeeded, agent.state.failed) == (True, 0, 0)


def test_a_change_is_taken_up(agent, path):
    """A changed file is applied once; the time of success moves; the event names the key."""
    path.write_text("gpu: {interval: 2s}\n")
    agent.polls()
    assert [config.gpu.interval for config in agent.applied] == [2.0]
    assert agent.state.succeeded == 1
    assert agent.state.success_time == agent.clock.wall() - 1
    assert "gpu.interval" in agent.events[0].message


def test_a_file_in_the_making_is_left_alone(agent, path):
    """A file that is truncated, then written, is read only when it has come to rest."""
    path.write_text("")
    agent.polls(1)
    path.write_text("gpu: {interval: 3s}\n")
    agent.polls(3)
    assert [config.gpu.interval for config in agent.applied] == [3.0]


def test_a_file_replaced_by_rename(agent, path, tmp_path):
    """An atomic replacement with equal size and time is noticed by its inode."""
    new = tmp_path / "new.yaml"
    new.write_text("gpu: {interval: 4s}\n")
    found = path.stat()
    os.utime(new, ns=(found.st_atime_ns, found.st_mtime_ns))
    new.replace(path)
    agent.polls()
    assert [config.gpu.interval for config in agent.applied] == [4.0]


def test_a_symlink_that_is_swapped(tmp_path):
    """A mounted ConfigMap changes by swapping a symlink; that is a change."""
    for number in (1, 2):
        (tmp_path / f"v{number}.yaml").write_text(f"gpu: {{interval: {number}s}}\n")
    link = tmp_path / "config.yaml"
    link.symlink_to("v1.yaml")
    agent = Agent(link)
    (tmp_path / "next").symlink_to("v2.yaml")
    (tmp_path / "next").rename(link)
    agent.polls()
    assert [config.gpu.interval for config in agent.applied] == [2.0]


def test_the_last_good_one_stays(agent, path):
    """A broken file changes nothing but the metrics, is tried once, and a repaired one is taken up."""
    before = agent.reloader.config
    path.write_text("gpu: {interval: soon}\n")
    agent.polls(5)
    assert agent.applied == []
    assert agent.reloader.config is before
    assert (agent.state.successful, agent.state.failed) == (False, 1)
    assert f"{path}:1:" in agent.state.problems[0]
    assert agent.events[0].name == "reload_failed"
    path.write_text("gpu: {interval: 5s}\n")
    agent.polls()
    assert agent.state.successful
    assert agent.state.problems == ()
    assert agent.reloader.config.gpu.interval == 5.0


def test_a_file_that_vanishes(agent, path):
    """A removed file is a failed reload; the agent goes on; the file's return is a change."""
    path.unlink()
    agent.polls()
    assert not agent.state.successful
    assert agent.reloader.config.gpu.interval == 1.0
    path.write_text("gpu: {interval: 6s}\n")
    agent.polls()
    assert agent.reloader.config.gpu.interval == 6.0


@pytest.mark.parametrize("error", [RuntimeError("no"), ColdaisleError("port taken")])
def test_an_apply_that_fails(agent, path, error):
    """If the agent cannot take the new values, the old ones stay and the reason is said."""
    agent.refuse = error
    path.write_text("gpu: {interval: 7s}\n")
    agent.polls()
    assert agent.reloader.config.gpu.interval == 1.0
    assert str(error) in agent.state.problems[0]


def test_hangup_reads_at_once(agent, path):
    """SIGHUP reloads without waiting, also an unchanged file, and is not repeated by the poll."""
    assert agent.reloader.reload()
    path.write_text("gpu: {interval: 8s}\n")
    assert agent.reloader.reload()
    agent.polls()
    assert agent.state.succeeded == 2
    assert agent.reloader.config.gpu.interval == 8.0


def test_keys_that_need_a_restart(agent, path):
    """Such a key keeps its running value, is named in event and state, and stops being so when it is put back."""
    path.write_text('gpu: {interval: 9s}\nweb: {listen_addresses: [":1"]}\npaths: {sysfs: /s, procfs: /p}\n')
    agent.polls()
    applied = agent.applied[0]
    assert applied.gpu.interval == 9.0
    assert applied.web.listen_addresses == (":10980",)
    assert agent.state.awaiting_restart == ("web.listen_addresses", "paths.sysfs", "paths.procfs")
    assert "web.listen_addresses" in agent.events[0].message
    path.write_text("gpu: {interval: 9s}\n")
    agent.polls()
    assert agent.state.awaiting_restart == ()


def test_flags_stay_on_top(path):
    """A command-line flag goes on overriding the file after a reload."""
    agent = Agent(path, flags={"log.level": "error"})
    path.write_text("log: {level: debug}\n")
    agent.polls()
    assert agent.reloader.config.log.level == "error"


def test_a_change_during_apply_is_not_lost(agent, path):
    """A file that changes while it is being applied is read again afterwards."""

    def apply(config):
        agent.applied.append(config)
        if len(agent.applied) == 1:
            path.write_text("gpu: {interval: 11s}\n")

    agent.reloader._apply = apply
    path.write_text("gpu: {interval: 2s}\n")
    agent.polls(5)
    assert [config.gpu.interval for config in agent.applied] == [2.0, 11.0]


def test_without_a_file():
    """An agent without a file never reloads, and SIGHUP does nothing."""
    agent = Agent(None)
    agent.polls()
    assert agent.reloader.reload()
    assert agent.applied == []


def test_restart_keys_are_one_section_deep():
    """Keeping running values relies on such keys being `section.key`."""
    assert all(key.name.count(".") == 1 for key in keys() if key.restart)
