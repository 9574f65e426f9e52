"""Which of the four bodies of a sample a scraper gets, by its Accept and Accept-Encoding headers."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

# A header longer than this is no scraper's.
_LONGEST = 4_096


class Choice(NamedTuple):
    """What to send."""

    openmetrics: bool
    gzip: bool


@lru_cache(maxsize=64)  # every Prometheus sends the same headers at each scrape
def choose(accept: str, accept_encoding: str) -> Choice:
    """Return the format and encoding for a scraper; text 0.0.4 and no encoding when the headers say nothing.

    OpenMetrics is sent to who names it, in version 1.0.0 or without version, at least as gladly as plain text;
    `*/*` alone gets text, which a person can read in a browser too.
    """
    openmetrics = plain = 0.0
    for media, parameters, quality in _items(accept[:_LONGEST]):
        if media == "application/openmetrics-text" and parameters.get("version", "1.0.0") == "1.0.0":
            openmetrics = max(openmetrics, quality)
        elif media == "text/plain":
            plain = max(plain, quality)
    codings = {coding: quality for coding, _, quality in _items(accept_encoding[:_LONGEST])}
    return Choice(
        openmetrics=openmetrics > 0 and openmetrics >= plain,
        gzip=codings.get("gzip", codings.get("x-gzip", codings.get("*", 0.0))) > 0,
    )


def _items(header: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for item in header.lower().split(","):
        name, *rest = (part.strip() for part in item.split(";"))
        pairs = (part.partition("=") for part in rest)
        parameters = {key.strip(): value.strip().strip('"') for key, _, value in pairs}
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 0.0
        if name:
            yield name, parameters, quality
