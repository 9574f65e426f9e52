"""Durations, sizes and addresses as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldaisle.config.quantities import parse_duration, parse_size, split_listen_address


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("250ms", 0.25), ("1m30s", 90), ("2h", 7200), ("0.25s", 0.25), ("0s", 0)]
)
def test_durations(text, seconds):
    """Durations are Prometheus' own spelling and come out in seconds."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("value", ["", "5", "5 s", "s", "-1s", "1.5.2s", 5, 1.5, True, None, [], {}, "9" * 400 + "s"])
def test_wrong_durations(value):
    """Everything else is refused."""
    with pytest.raises(ValueError, match=r"must|needs"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("text", "size"),
    [(0, 0), (4096, 4096), ("4096", 4096), ("1kB", 1000), ("1KiB", 1024), ("10GiB", 10 << 30), ("1.5 MB", 1_500_000)],
)
def test_sizes(text, size):
    """Sizes are bytes, with decimal or binary multiples."""
    assert parse_size(text) == size


@pytest.mark.parametrize("value", ["", "big", "-1", -1, 1.5, True, None, "1XB", "1 G B"])
def test_wrong_sizes(value):
    """Everything else is refused."""
    with pytest.raises(ValueError, match="must be a size"):
        parse_size(value)


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        (":10980", ("", 10980)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:9400", ("::1", 9400)),
        ("node-7.example:80", ("node-7.example", 80)),
    ],
)
def test_addresses(address, parts):
    """Addresses split into host and port."""
    assert split_listen_address(address) == parts


@given(st.text())
def test_any_text_is_answered(text):
    """Whatever is written, a parser gives a value or a ValueError with one line of explanation."""
    for parser in (parse_duration, parse_size, split_listen_address):
        try:
            parser(text)
        except ValueError as error:
            assert str(error)  # noqa: PT017  the point is that nothing else is raised
