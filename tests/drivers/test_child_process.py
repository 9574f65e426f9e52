"""Ending children: politely, then firmly, and never waiting for one that cannot die."""

import signal

from coldaisle.drivers.child_process import TERM_GRACE, Undertaker


class Stubborn:
    """A child that ends only when the test says so."""

    pid = 1

    def __init__(self):
        self.signals = []
        self.status = None
        self.open = True

    def signal(self, number):
        self.signals.append(number)

    def returncode(self):
        return self.status

    def close(self):
        self.open = False


def test_undertaker_is_polite_then_firm():
    """SIGTERM, ten seconds, SIGKILL, and then reported instead of waited for."""
    undertaker = Undertaker()
    child = Stubborn()
    undertaker.take(child, 0)
    undertaker.look(TERM_GRACE - 0.1)
    assert child.signals == [signal.SIGTERM]
    undertaker.look(TERM_GRACE)
    assert child.signals == [signal.SIGTERM, signal.SIGKILL]
    assert undertaker.stuck == [1]
    child.status = -9
    undertaker.look(TERM_GRACE + 1)
    assert (undertaker.count, child.open) == (0, False)
