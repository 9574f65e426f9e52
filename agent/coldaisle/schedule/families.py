"""Metrics of the schedule: what ran, what was late, what was left out."""

from coldaisle.metrics.families import Family, Kind

TICK_DURATION = Family(
    "coldaisle_tick_duration_seconds",
    Kind.HISTOGRAM,
    "Time that a run of the tick took in the main process.",
    ("tick",),
    "seconds",
)
TICK_INTERVAL = Family(
    "coldaisle_tick_interval_seconds", Kind.GAUGE, "Interval of the tick as configured.", ("tick",), "seconds"
)
TICK_LATE = Family(
    "coldaisle_tick_late_total",
    Kind.COUNTER,
    "Runs of the tick that started more than a tenth of the interval after they were due.",
    ("tick",),
)
TICK_MISSED = Family(
    "coldaisle_tick_missed_total",
    Kind.COUNTER,
    "Intervals without a run, because the run before was still going or the process did not get to run.",
    ("tick",),
)
TICK_OVERRUN = Family(
    "coldaisle_tick_overrun_total", Kind.COUNTER, "Runs of the tick that took longer than the interval.", ("tick",)
)
TICK_FAILURES = Family(
    "coldaisle_tick_failures_total", Kind.COUNTER, "Runs of the tick that ended in an error of the agent's.", ("tick",)
)
TICK_FAMILIES = (TICK_DURATION, TICK_INTERVAL, TICK_LATE, TICK_MISSED, TICK_OVERRUN, TICK_FAILURES)

JOB_RUNS = Family(
    "coldaisle_job_runs_total",
    Kind.COUNTER,
    "Ends of slow jobs by result: ok, error, missed (its time passed without a run), overlap (the run before was "
    "still going).",
    ("job", "result"),
)
JOB_DURATION = Family(
    "coldaisle_job_duration_seconds", Kind.GAUGE, "Time that the last run of a slow job took.", ("job",), "seconds"
)
JOB_LAST_SUCCESS = Family(
    "coldaisle_job_last_success_timestamp_seconds",
    Kind.GAUGE,
    "Unix time of the last run of a slow job that ended without an error; absent before the first.",
    ("job",),
    "seconds",
)
CLOCK_STEPS = Family(
    "coldaisle_clock_steps_total",
    Kind.COUNTER,
    "Times that the wall clock was set forward or back by more than a second while the agent ran.",
)
JOB_FAMILIES = (JOB_RUNS, JOB_DURATION, JOB_LAST_SUCCESS, CLOCK_STEPS)

FAMILIES = TICK_FAMILIES + JOB_FAMILIES
