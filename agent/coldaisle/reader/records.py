"""The record format of /dev/kmsg: `priority,sequence,microseconds,flags[,...];text`, then ` KEY=value` lines."""

from typing import NamedTuple

TEXT_LIMIT = 2_048
"""Characters of a record's text that are looked at; the kernel's own limit is about 1,000."""


class Record(NamedTuple):
    """One kernel message. `facility` 0 is the kernel itself; `usec` counts from boot."""

    level: int
    facility: int
    sequence: int
    usec: int
    text: str


def parse(raw: bytes) -> Record | None:
    """Return the record in `raw` (one record, with or without its newline), None if it is not one."""
    header, semicolon, rest = raw.partition(b";")
    fields = header.split(b",")
    if not semicolon or len(fields) < 3 or len(header) > 200:
        return None
    priority, sequence, usec = fields[:3]
    if not (priority.isdigit() and sequence.isdigit() and usec.isdigit()) or max(map(len, fields[:3])) > 20:
        return None
    number = int(priority)
    text = rest.partition(b"\n")[0][:TEXT_LIMIT]
    # The kernel escapes what is not printable ASCII; whatever else comes through a file is kept visible.
    return Record(number & 7, number >> 3, int(sequence), int(usec), text.decode("ascii", "backslashreplace"))


class Splitter:
    """Cuts a byte stream of records into records; keeps an unfinished one, drops one that never ends.

    A line that starts with a space belongs to the record before it and carries nothing of interest.
    """

    __slots__ = ("_buffer", "_limit", "_skipping", "malformed")

    def __init__(self, limit: int = 16_384) -> None:
        self._buffer = b""
        self._limit = limit
        self._skipping = False
        self.malformed = 0

    @property
    def unfinished(self) -> int:
        """Bytes held back until their newline comes."""
        return len(self._buffer)

    def reset(self) -> None:
        """Forget the unfinished record: its stream was cut off."""
        self._buffer = b""
        self._skipping = False

    def feed(self, data: bytes) -> list[Record]:
        """Return the records completed by `data`."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        records = []
        for line in lines:
            if self._skipping:
                self._skipping = False
            elif line and not line.startswith(b" "):
                record = parse(line)
                if record is None:
                    self.malformed += 1
                else:
                    records.append(record)
        if len(self._buffer) > self._limit:
            self._buffer = b""
            self.malformed += not self._skipping
            self._skipping = True
        return records
