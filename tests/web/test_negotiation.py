import pytest
from prometheus_client.exposition import choose_encoder, gzip_accepted

from coldaisle.web.negotiation import Choice, choose

ACCEPTS = (
    "",
    "*/*",
    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "text/plain",
    "text/plain;version=0.0.4",
    "application/openmetrics-text",
    "application/openmetrics-text; version=1.0.0; charset=utf-8",
    "application/openmetrics-text;version=0.0.1",
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
)


@pytest.mark.parametrize("accept", ACCEPTS)
def test_format_is_the_client_librarys_choice(accept):
    """For what scrapers and browsers send, the format is the one that Prometheus' own client library chooses."""
    _, content_type = choose_encoder(accept)
    assert choose(accept, "").openmetrics is content_type.startswith("application/openmetrics-text")


@pytest.mark.parametrize("encoding", ["", "identity", "gzip", "GZIP", "deflate, gzip;q=0.5", "br", "gzip, zstd"])
def test_encoding_is_the_client_librarys_choice(encoding):
    """Gzip is sent to who names it."""
    assert choose("", encoding).gzip is gzip_accepted(encoding)


@pytest.mark.parametrize(
    ("accept", "encoding", "choice"),
    [
        ("application/openmetrics-text;q=0", "gzip;q=0", Choice(openmetrics=False, gzip=False)),
        ("application/openmetrics-text;q=0.1,text/plain;q=0.9", "*", Choice(openmetrics=False, gzip=True)),
        ("application/openmetrics-text;version=2.0.0", "*;q=0, gzip", Choice(openmetrics=False, gzip=True)),
        ("application/openmetrics-text;q=nonsense", ";;=,,", Choice(openmetrics=False, gzip=False)),
        (",;q" * 100_000, "gzip" * 100_000, Choice(openmetrics=False, gzip=False)),
    ],
)
def test_qualities_are_respected(accept, encoding, choice):
    """What a client refuses or likes less is not sent, and nonsense gets plain text."""
    assert choose(accept, encoding) == choice
