"""The remaining time of a comparison is estimated from the durations of its checks."""

import pytest

from harness.measuring.monitor import Remaining


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def check(remaining: Remaining, clock: Clock, seconds: float, call: float | None) -> None:
    remaining.check_begins()
    clock.seconds += seconds
    remaining.check_ended(call)


def test_nothing_is_guessed_before_a_check_has_ended(clock):
    remaining = Remaining(2, 30.0, clock)
    remaining.check_begins()
    clock.seconds += 5
    assert remaining.seconds() is None


def test_other_checks_are_taken_to_be_as_long_and_the_timing_as_long_as_asked(clock):
    remaining = Remaining(3, 30.0, clock)
    check(remaining, clock, 10.0, 0.1)
    assert remaining.seconds() == 10 + 10 + 30
    remaining.check_begins()
    clock.seconds += 4
    assert remaining.seconds() == 6 + 10 + 30
    clock.seconds += 100
    assert remaining.seconds() == 0 + 10 + 30


def test_long_calls_take_longer_than_was_asked(clock):
    remaining = Remaining(2, 30.0, clock)
    check(remaining, clock, 12.0, 10.0)
    check(remaining, clock, 12.0, 8.0)
    assert remaining.seconds() == 6 * 18
    clock.seconds += 100
    assert remaining.seconds() == 8
    clock.seconds += 100
    assert remaining.seconds() == 0


def test_where_nothing_passed_nothing_is_timed(clock):
    remaining = Remaining(1, 30.0, clock)
    check(remaining, clock, 5.0, None)
    assert remaining.seconds() == 0
