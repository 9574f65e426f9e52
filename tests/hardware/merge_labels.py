"""A recording and a session's timeline become one labelled recording, fit for tests/recordings.

python tests/hardware/merge_labels.py DIR/recording.jsonl.gz DIR/timeline.jsonl tests/recordings/NAME.jsonl.gz
"""

import argparse
import gzip
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "agent"))
from coldaisle.domain.errors import ColdaisleError
from coldaisle.drivers.recording import lines, summary


def labels_of(timeline, start):
    """Return [(milliseconds, label)] of a timeline's text, ascending; `start`: the recording's monotonic start."""
    rows = [json.loads(line) for line in timeline.splitlines() if line.strip()]
    return sorted((max(0, round((row["monotonic"] - start) * 1000)), row["label"]) for row in rows)


def merged(recording, labels):
    """Yield a recording's lines with its facts in the header and labels before the first call of their time."""
    rows = [json.loads(line) for line in recording]
    header = {key: value for key, value in rows[0].items() if key != "monotonic"}
    for row in rows:
        if isinstance(row, dict):
            header |= row.get("about", {})
    yield json.dumps(header)
    waiting = list(labels)
    for row in rows[1:]:
        if isinstance(row, dict) and "about" in row:
            continue
        at = row[0] if isinstance(row, list) and row[0] != "f" else None
        while at is not None and waiting and waiting[0][0] <= at:
            ms, label = waiting.pop(0)
            yield json.dumps({"label": label, "t": ms / 1000})
        yield json.dumps(row, separators=(",", ":"))
    for ms, label in waiting:
        yield json.dumps({"label": label, "t": ms / 1000})


def merge(recording, timeline, target):
    """Write the labelled recording, packed if its name ends in .gz, the same bytes for the same input.

    Raises ColdaisleError if `recording` is none or does not say when it began.
    """
    source = list(lines(str(recording)))
    start = json.loads(source[0]).get("monotonic")
    if start is None:
        raise ColdaisleError(
            f"{recording}: does not say when it began", remedy="record with format 2, and merge once only"
        )
    text = "".join(line + "\n" for line in merged(source, labels_of(Path(timeline).read_text(), start))).encode()
    Path(target).write_bytes(gzip.compress(text, 9, mtime=0) if str(target).endswith(".gz") else text)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recording", type=Path)
    parser.add_argument("timeline", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args(arguments)
    try:
        merge(options.recording, options.timeline, options.target)
    except (ColdaisleError, OSError) as error:
        raise SystemExit(f"{error}") from None
    for label, seconds, calls in summary(str(options.target)):
        print(f"{label or '(before)':28s} {seconds:8.1f} s {calls:7d} calls")


if __name__ == "__main__":
    main()
