"""The reload's state as metrics."""

from coldaisle.app.config_collector import ConfigCollector
from coldaisle.config.loader import load
from coldaisle.config.reload import Reloader
from coldaisle.domain.clock import FakeClock


def test_a_failed_reload_is_visible(tmp_path):
    """A failed reload sets the gauge to 0, counts, keeps the time of the last success, and is the collector's problem."""
    path = tmp_path / "config.yaml"
    path.write_text("mode: observe\n")
    clock = FakeClock(wall=5000.0)
    reloader = Reloader(path, lambda config: None, clock, initial=load(path))
    collector = ConfigCollector(lambda: reloader.state)

    def values():
        result = collector.collect(0.0)
        return result, {(sample.family.name, *sample.labels): sample.value for sample in result.samples}

    result, found = values()
    assert result.problem == ""
    assert found["coldaisle_config_last_reload_successful",] == 1
    clock.advance(10)
    path.write_text("mode: loud\n")
    reloader.reload()
    result, found = values()
    assert "mode" in result.problem
    assert found == {
        ("coldaisle_config_last_reload_successful",): 0,
        ("coldaisle_config_last_reload_success_timestamp_seconds",): 5000.0,
        ("coldaisle_config_reloads_total", "success"): 0,
        ("coldaisle_config_reloads_total", "failure"): 1,
    }
