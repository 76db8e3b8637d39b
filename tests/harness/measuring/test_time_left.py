"""The remaining time of a run is estimated from its pieces that have ended."""

import pytest
from fake_clock import FakeClock

from harness.measuring.time_left import TIMING, ComparisonTime, Piece, TimeLeft
from harness.measuring.timing.forecast import expected_seconds
from harness.model.settings import SamplingRule

RULE = SamplingRule(seconds=30.0)


class TestPieces:
    @staticmethod
    def run(left: TimeLeft, clock: FakeClock, name: str, seconds: float) -> None:
        left.begins(name)
        clock.advance(seconds)
        assert left.ended(name) == pytest.approx(seconds)

    def test_they_take_as_long_as_others_of_their_kind(self, clock: FakeClock):
        left = TimeLeft({name: Piece(name[0]) for name in ("a1", "a2", "a3", "b1")}, now=clock.wall)
        assert left.seconds() is None
        self.run(left, clock, "a1", 10)
        assert left.seconds() == 10 + 10 + 10, "nothing is known of b"
        self.run(left, clock, "b1", 100)
        assert left.seconds() == 20
        self.run(left, clock, "a2", 20)
        assert left.seconds() == 15
        self.run(left, clock, "a3", 20)
        assert left.seconds() == 0

    def test_their_sizes_count_and_the_time_that_they_have_run(self, clock: FakeClock):
        left = TimeLeft({name: Piece("a", int(name)) for name in "123"}, now=clock.wall)
        self.run(left, clock, "1", 10)
        assert left.seconds() == 20 + 30
        left.begins("2")
        clock.advance(5)
        assert left.seconds() == 15 + 30
        clock.advance(100)
        assert left.seconds() == 30

    def test_an_estimate_of_their_own_is_better(self, clock: FakeClock):
        left = TimeLeft({"a": Piece("a"), "b": Piece("b", expected_s=7.0)}, now=clock.wall)
        assert left.seconds() is None
        left.begins("a")
        clock.advance(10)
        left.expects("a", 50)
        assert left.seconds() == 57
        clock.advance(20)
        assert left.seconds() == 37

    def test_several_at_once_share_it_but_the_longest_is_not_shared(self, clock: FakeClock):
        left = TimeLeft({name: Piece("a") for name in "abcde"}, at_once=2, now=clock.wall)
        self.run(left, clock, "a", 10)
        assert left.seconds() == 20
        left.expects("b", 100)
        assert left.seconds() == 100

    def test_a_known_pace_counts_until_there_is_a_better_one(self, clock: FakeClock):
        left = TimeLeft({name: Piece("a", 30) for name in "ab"}, pace=1.0, now=clock.wall)
        assert left.seconds() == 60
        self.run(left, clock, "a", 45)
        assert left.seconds() == 45


class TestAComparison:
    @staticmethod
    def check(left: ComparisonTime, clock: FakeClock, name: str, s: float, call: float | None):
        left.begins(name)
        clock.advance(s)
        left.check_ended(name, call)

    def test_nothing_is_guessed_before_a_check_has_ended(self, clock: FakeClock):
        left = ComparisonTime("ab", "ab", RULE, clock.wall)
        left.begins("a")
        clock.advance(5)
        assert left.seconds() is None

    def test_other_checks_are_as_long_and_set_up_is_as_long_as_a_check(self, clock: FakeClock):
        left = ComparisonTime("abc", "abc", RULE, clock.wall)
        self.check(left, clock, "a", 10.0, 0.5)
        timing = 9.5 + expected_seconds([0.5] * 3, RULE)
        assert left.seconds() == pytest.approx(20 + timing)
        left.begins("b")
        clock.advance(4)
        assert left.seconds() == pytest.approx(16 + timing)

    def test_only_what_passed_and_is_to_be_timed_is_timed(self, clock: FakeClock):
        left = ComparisonTime("ab", "a", RULE, clock.wall)
        self.check(left, clock, "b", 5.0, 5.0)
        assert left.seconds() == 5
        self.check(left, clock, "a", 5.0, None)
        assert left.seconds() == 0

    def test_the_timing_s_own_estimate_replaces_it(self, clock: FakeClock):
        left = ComparisonTime("a", "a", RULE, clock.wall)
        self.check(left, clock, "a", 5.0, 0.1)
        left.begins(TIMING)
        clock.advance(2)
        left.expects(TIMING, 3)
        assert left.seconds() == 3
        clock.advance(1)
        assert left.seconds() == 2


@pytest.mark.parametrize("call", [1e-6, 0.01, 1.0, 100.0])
def test_long_calls_take_longer_than_was_asked_and_short_ones_less(call: float):
    expected = expected_seconds([call, call], RULE)
    assert (expected > RULE.seconds) == (call == 100.0)
    assert expected > 4 * 2 * call
