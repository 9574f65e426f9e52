"""Readings: a value is never separated from when, by whom and how it was obtained."""

from enum import StrEnum
from typing import NamedTuple


class Source(StrEnum):
    """Who answered."""

    DCGM = "dcgm"
    NVML = "nvml"
    GPM = "gpm"
    KMSG = "kmsg"
    PSUTIL = "psutil"
    SYSFS = "sysfs"
    AGENT = "agent"


class Quality(StrEnum):
    """How a value came about."""

    MEASURED = "measured"
    """The source's own number."""
    DERIVED = "derived"
    """Computed by the agent from measured numbers."""


class Absence(StrEnum):
    """Why there is no value. The label `reason` of `coldaisle_dropped_values_total` and of `collect --explain`."""

    NOT_SUPPORTED = "not_supported"
    NO_DATA = "no_data"
    PERMISSION_DENIED = "permission_denied"
    LOST = "lost"
    RESET_REQUIRED = "reset_required"
    TRANSIENT = "transient"
    NAN = "nan"
    SENTINEL = "sentinel"
    IMPOSSIBLE = "impossible"
    STALE = "stale"
    QUARANTINED = "quarantined"
    DRIVER_ABSENT = "driver_absent"
    DRIVER_MISMATCH = "driver_mismatch"
    RELEASED = "released"


class Reading(NamedTuple):
    """One value of one quantity.

    `value` is in the base unit of its catalogue entry, `taken_at` is CLOCK_MONOTONIC seconds.
    """

    value: float
    taken_at: float
    source: Source
    quality: Quality = Quality.MEASURED
