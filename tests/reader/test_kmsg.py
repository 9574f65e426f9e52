"""Device and file sources: gaps, overruns, resume, truncation, permission."""

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldaisle.reader.kmsg import BUDGET, KmsgDevice, KmsgFile, open_source
from coldaisle.reader.records import Splitter, parse


def line(sequence, text="hello", priority=6):
    return f"{priority},{sequence},{sequence * 1000},-;{text}\n".encode()


class FakeDevice:
    """What read() on /dev/kmsg does, from a script of records and errors."""

    def __init__(self, *script):
        self.script = list(script)

    def __call__(self, fd, size):
        if not self.script:
            raise BlockingIOError
        item = self.script.pop(0)
        if isinstance(item, int):
            raise OSError(item, os.strerror(item))
        if len(item) > size:
            raise OSError(errno.EINVAL, "short buffer")
        return item


def device(tmp_path, *script, boot="boot-1"):
    path = tmp_path / "device"
    path.touch()
    return KmsgDevice(str(path), boot, FakeDevice(*script))


def test_records_are_parsed_with_continuation_lines():
    """Header fields and text are read; the dictionary lines that follow are not part of the text."""
    record = parse(b"3,1234,98765,-,caller=T1;NVRM: Xid\n SUBSYSTEM=pci\n DEVICE=+pci:0000:05:00.0\n")
    assert record == (3, 0, 1234, 98765, "NVRM: Xid")


@given(st.binary(max_size=3000))
def test_hostile_bytes_never_raise(raw):
    """Any bytes give a record or none, also through the splitter."""
    record = parse(raw)
    assert record is None or record.text.isascii()
    splitter = Splitter()
    assert all(found.sequence >= 0 for found in splitter.feed(raw + b"\n"))


def test_gap_in_numbers_is_counted_as_lost(tmp_path):
    """An overrun (EPIPE) goes on with the next record, and the gap says how many were lost."""
    source = device(tmp_path, line(10), errno.EPIPE, line(15), line(16))
    batch = source.read(0.0)
    assert [record.sequence for record in batch.records] == [10, 15, 16]
    assert (source.lost, source.overruns, source.lines, batch.drained) == (4, 1, 3, True)


def test_too_long_a_record_is_lost_and_counted(tmp_path):
    """EINVAL enlarges the buffer; the record that the kernel passed over shows as a gap."""
    source = device(tmp_path, line(1), errno.EINVAL, line(3, "x" * 9000))
    assert [record.sequence for record in source.read(0.0).records] == [1, 3]
    assert source.lost == 1


def test_user_space_may_not_speak_for_the_kernel(tmp_path):
    """A record of another facility through the device is counted as foreign and not delivered."""
    source = device(tmp_path, line(1, "NVRM: Xid", priority=11), line(2))
    assert [record.sequence for record in source.read(0.0).records] == [2]
    assert source.foreign == 1


def test_device_resumes_without_repeats_and_counts_what_was_lost(tmp_path):
    """After a restart the ring is read from its oldest record: the known part is skipped, the missed part counted."""
    first = device(tmp_path, line(1), line(2))
    first.read(0.0)
    again = device(tmp_path, line(1), line(2), line(3))
    again.resume(first.position())
    assert [record.sequence for record in again.read(0.0).records] == [3]
    overrun = device(tmp_path, line(7))
    overrun.resume(first.position())
    overrun.read(0.0)
    assert overrun.lost == 4


def test_position_of_another_boot_is_ignored(tmp_path):
    """Numbers start again at every boot."""
    source = device(tmp_path, line(1), boot="boot-2")
    source.resume({"boot_id": "boot-1", "seq": 900})
    assert len(source.read(0.0).records) == 1


def test_reopening_after_an_error_repeats_nothing(tmp_path):
    """An end of file is an error; re-opening starts at the oldest record, which is not delivered twice."""
    source = device(tmp_path, line(1), b"", line(1), line(2))
    assert len(source.read(0.0).records) == 1
    fake = source._read
    fake.script.insert(0, b"")
    assert source.read(0.1).records == []
    assert source.state == "failed"
    assert source.read(0.2).records == []
    assert [record.sequence for record in source.read(5.0).records] == [2]
    assert source.state == "ok"


def test_work_per_read_is_bounded(tmp_path):
    """A flood gives at most a budget's worth of records at a time."""
    source = device(tmp_path, *(line(n) for n in range(2 * BUDGET)))
    batch = source.read(0.0)
    assert (len(batch.records), batch.drained) == (BUDGET, False)


def test_permission_is_a_state_with_a_remedy_and_back_off(tmp_path):
    """EPERM is explained and tried again with growing pauses, never in a tight loop."""
    source = device(tmp_path, errno.EPERM, errno.EPERM, line(1))
    source.read(0.0)
    assert source.state == "denied"
    assert "CAP_SYSLOG" in source.remedy
    assert "not permitted" in source.reason
    source.read(0.5)
    assert len(source._read.script) == 2
    source.read(1.0)
    source.read(2.5)
    assert len(source._read.script) == 1
    assert len(source.read(3.1).records) == 1
    assert (source.state, source.reason) == ("ok", "")


def write(path, *records, mode="ab"):
    with path.open(mode) as file:
        file.write(b"".join(records))


def sequences(source, now=0.0):
    return [record.sequence for record in source.read(now).records]


def test_file_may_come_late(tmp_path):
    """A missing file is a state, and its first record is delivered once it is there."""
    path = tmp_path / "kmsg"
    source = KmsgFile(str(path))
    assert sequences(source) == []
    assert source.state == "missing"
    write(path, line(1))
    assert sequences(source, 2.0) == [1]


def test_file_keeps_an_unfinished_line(tmp_path):
    """A record cut in two by its writer is delivered once, whole."""
    path = tmp_path / "kmsg"
    write(path, line(1)[:7])
    source = KmsgFile(str(path))
    assert sequences(source) == []
    write(path, line(1)[7:], b" KEY=x\n", line(2))
    assert sequences(source) == [1, 2]


@pytest.mark.parametrize("later", [(line(1),), tuple(line(n, "other") for n in range(1, 50))])
def test_file_survives_truncation(tmp_path, later):
    """A truncated file is read from its start, also when it has grown past the old offset since."""
    path = tmp_path / "kmsg"
    write(path, line(1), line(2), line(3))
    source = KmsgFile(str(path))
    assert sequences(source) == [1, 2, 3]
    write(path, *later, mode="wb")
    assert len(sequences(source)) == len(later)
    assert source.lost == 0


def test_file_that_is_replaced_is_followed(tmp_path):
    """A new file at the path is read once the old one is drained."""
    path = tmp_path / "kmsg"
    write(path, line(1))
    source = KmsgFile(str(path))
    assert sequences(source) == [1]
    path.rename(tmp_path / "old")
    write(path, line(1, "new"))
    assert sequences(source) == []
    assert sequences(source) == [1]


def test_file_resumes_at_its_offset(tmp_path):
    """After a restart nothing is repeated; a file that starts differently is another file."""
    path = tmp_path / "kmsg"
    write(path, line(1), line(2))
    first = KmsgFile(str(path))
    first.read(0.0)
    write(path, line(5))
    again = KmsgFile(str(path))
    again.resume(first.position())
    assert sequences(again) == [5]
    assert again.lost == 2
    write(path, line(1, "other machine"), line(2), line(3), mode="wb")
    other = KmsgFile(str(path))
    other.resume(first.position())
    assert sequences(other) == [1, 2, 3]


def test_fifo_is_read_without_blocking(tmp_path):
    """A FIFO without a writer gives nothing; what a writer sends arrives."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    source = open_source(str(path))
    assert sequences(source) == []
    with path.open("wb", buffering=0) as writer:
        writer.write(line(1))
        assert sequences(source) == [1]
    source.close()


def test_endless_line_is_dropped_and_counted():
    """A line that never ends neither fills memory nor hides the records after it."""
    splitter = Splitter(limit=100)
    for _ in range(50):
        assert splitter.feed(b"x" * 99) == []
    assert len(splitter.feed(b"\n" + line(1))) == 1
    assert splitter.malformed == 1


def test_directory_is_refused(tmp_path):
    """Something that can be no kernel log is a failed state, not a crash."""
    source = open_source(str(tmp_path))
    assert sequences(source) == []
    assert source.state == "failed"
