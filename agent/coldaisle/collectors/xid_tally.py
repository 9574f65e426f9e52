"""Counts Xids once, whoever reports them: the kernel log, NVML, or both."""

from typing import NamedTuple

WINDOW = 5.0
"""Seconds within which the same Xid of the same GPU from two sources is one."""
MEMORY = 120.0
"""Seconds that a report waits for its partner when a source is late (a reader that was restarted): such a partner is
known by the time at which it says that the Xid happened."""
MAX_SERIES = 1_024
"""Distinct (GPU, code) pairs; codes past that are counted as `other`."""
MAX_WAITING = 1_000
"""Reports of one Xid that can wait for a partner; a storm is no reason to remember each."""
OTHER = "other"


class Key(NamedTuple):
    """`gpu` is a UUID, or a bus id while the UUID is not known; `xid` the code as text."""

    gpu: str
    xid: str


class _Unmatched:
    __slots__ = ("count", "seen_at", "settled", "source", "when")

    def __init__(self, source: str, when: float, seen_at: float, count: int) -> None:
        self.source = source
        self.when = when
        self.settled = False
        self.seen_at = seen_at
        self.count = count


class XidTally:
    """Counters and last times by GPU and code.

    A report is matched against unmatched ones of another source within `WINDOW`, one to one; what finds no partner is
    counted. In a burst that both report the count is thus the larger of the two. A report is a disagreement when no
    other source reported the Xid within `WINDOW` of it, before or after.
    """

    def __init__(self) -> None:
        self.counts: dict[Key, int] = {}
        self.last: dict[Key, float] = {}
        self.disagreements: dict[str, int] = {}
        self._unmatched: dict[Key, list[_Unmatched]] = {}
        self._heard: dict[tuple[Key, str], float] = {}

    def zero(self, gpu: str, codes: tuple[str, ...]) -> None:
        """Give every code a count of 0 if it has none."""
        for code in codes:
            self.counts.setdefault(Key(gpu, code), 0)

    def report(self, key: Key, source: str, when: float, now: float, count: int = 1, *, judged: bool = True) -> None:
        """Take a report of `count` occurrences.

        `when` is Unix seconds, `now` monotonic seconds; `judged` False keeps history that no other source can have
        seen from counting as a disagreement.
        """
        if key not in self.counts and len(self.counts) >= MAX_SERIES:
            key = Key(key.gpu if Key(key.gpu, OTHER) in self.counts else "", OTHER)
        self.last[key] = max(when, self.last.get(key, 0.0))
        self._heard[key, source] = now
        waiting = self._unmatched.setdefault(key, [])
        left = _match(waiting, source, when, now, count)
        self.counts[key] = self.counts.get(key, 0) + left
        if left and judged:
            del waiting[:-MAX_WAITING]
            waiting.append(_Unmatched(source, when, now, left))

    def expire(self, now: float) -> None:
        """Settle reports whose window has passed; `now` is monotonic seconds."""
        for key in tuple(self._unmatched):
            kept = []
            for report in self._unmatched[key]:
                if now - report.seen_at <= MEMORY:
                    kept.append(report)
                if report.settled or now - report.seen_at <= WINDOW:
                    continue
                report.settled = True
                if not self._heard_elsewhere(key, report):
                    self.disagreements[report.source] = self.disagreements.get(report.source, 0) + report.count
            if kept:
                self._unmatched[key] = kept
            else:
                del self._unmatched[key]

    def rename(self, old: str, new: str) -> None:
        """Book what was counted under a bus id to the UUID that it turned out to be."""
        for key in [key for key in self.counts if key.gpu == old]:
            target = Key(new, key.xid)
            self.counts[target] = self.counts.get(target, 0) + self.counts.pop(key)
            if key in self.last:
                self.last[target] = max(self.last.pop(key), self.last.get(target, 0.0))
            self._unmatched.setdefault(target, []).extend(self._unmatched.pop(key, []))

    def _heard_elsewhere(self, key: Key, report: _Unmatched) -> bool:
        return any(
            heard_key == key and source != report.source and abs(at - report.seen_at) <= WINDOW
            for (heard_key, source), at in self._heard.items()
        )


def _match(waiting: list[_Unmatched], source: str, when: float, now: float, count: int) -> int:
    """Pair with reports of other sources; return how many found no partner."""
    for report in waiting:
        near = now - report.seen_at <= WINDOW or abs(when - report.when) <= WINDOW
        if report.source != source and near:
            paired = min(count, report.count)
            report.count -= paired
            count -= paired
    waiting[:] = [report for report in waiting if report.count]
    return count
