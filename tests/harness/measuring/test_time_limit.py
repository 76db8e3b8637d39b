"""What runs longer than its limit is ended."""

import signal
import time

import pytest

from harness.measuring import time_limit as module
from harness.measuring.time_limit import TimeIsUp, time_limit


def test_what_runs_too_long_is_ended_and_the_timer_is_as_before():
    """Nothing waits for the end of a sleep."""
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TimeIsUp), time_limit(0.01):
        time.sleep(30)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_end_comes_again_if_a_destructor_swallows_it(monkeypatch):
    """Python prints what a destructor raises, and goes on."""
    monkeypatch.setattr(module, "_AGAIN_S", 0.01)

    class Swallowing:
        def __del__(self):
            signal.pause()

    def work():
        Swallowing()
        time.sleep(30)

    with pytest.raises(TimeIsUp), time_limit(0.01):
        work()


def test_cleaning_up_is_not_ended():
    """The end does not come again while an earlier one is being handled."""
    cleaned = []

    def work():
        try:
            signal.raise_signal(signal.SIGALRM)
        finally:
            signal.raise_signal(signal.SIGALRM)
            cleaned.append("up")

    with pytest.raises(TimeIsUp), time_limit(600):
        work()
    assert cleaned == ["up"]
