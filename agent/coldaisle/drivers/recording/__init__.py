"""Raw vendor answers to a file and back: recorded on a real machine, replayed anywhere, at the pynvml boundary.

One JSON value a line; docs/recordings.md has the grammar.
"""

from coldaisle.drivers.recording.format import VERSION, entries, lines, summary
from coldaisle.drivers.recording.recorder import RecordingNvml
from coldaisle.drivers.recording.replay import ReplayNvml

__all__ = ["VERSION", "RecordingNvml", "ReplayNvml", "entries", "lines", "summary"]
