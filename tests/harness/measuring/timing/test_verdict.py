"""The ratio of two variants, its interval, and the verdict that follows from it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from harness.measuring.timing.verdict import estimate_ratio, explain, judge
from harness.model.cell import Ratio

seconds = st.floats(min_value=1e-6, max_value=1e4)


def pairs_of(least: int) -> st.SearchStrategy[tuple[list[float], list[float]]]:
    return st.lists(st.tuples(seconds, seconds), min_size=least, max_size=max(16, least)).map(
        lambda pairs: ([left for left, _ in pairs], [right for _, right in pairs])
    )


def close(left: float, right: float) -> bool:
    return left == right or math.isclose(left, right, rel_tol=1e-6)


class TestEstimate:
    @given(pairs_of(1))
    def test_the_value_lies_within_the_interval_and_the_pairs_ratios(self, times):
        """An estimate is a mean of what was measured."""
        ratio = estimate_ratio(*times)
        assert 0 <= ratio.low <= ratio.value <= ratio.high
        assert ratio.pairs == len(times[0])
        ratios = [left / right for left, right in zip(*times, strict=True)]
        assert min(ratios) * (1 - 1e-9) <= ratio.value <= max(ratios) * (1 + 1e-9)

    @settings(max_examples=50)
    @given(pairs_of(4), st.floats(min_value=1e-2, max_value=1e2))
    def test_it_follows_the_times(self, times, factor):
        """Swapping the sides inverts the ratio, and scaling a side scales it."""
        ratio, swapped = estimate_ratio(*times), estimate_ratio(*times[::-1])
        longer = [factor * time for time in times[0]]
        both = estimate_ratio(longer, [factor * time for time in times[1]])
        mine = estimate_ratio(longer, times[1])
        assert close(swapped.low, 1 / ratio.high)
        for name in ("value", "low", "high"):
            assert close(getattr(both, name), getattr(ratio, name))
            assert close(getattr(mine, name), factor * getattr(ratio, name))

    @given(pairs_of(10))
    def test_the_most_extreme_tenth_on_either_side_does_not_matter(self, times):
        """A slow spell in one turn of a pair is an outlier."""
        logs = [math.log(left / right) for left, right in zip(*times, strict=True)]
        wild = sorted(range(len(logs)), key=logs.__getitem__)[-(len(logs) // 10) :]
        spoilt = [left * 1e3 if at in wild else left for at, left in enumerate(times[0])]
        assert estimate_ratio(spoilt, times[1]).value == estimate_ratio(*times).value

    def test_one_pair_has_no_interval(self):
        """A single pair decides nothing."""
        ratio = estimate_ratio([3.0], [2.0])
        assert (ratio.value, ratio.low, ratio.high) == (pytest.approx(1.5), 0.0, math.inf)
        assert judge(ratio) == "inconclusive"
        assert explain(ratio) == "one pair has no interval"

    @pytest.mark.parametrize(
        ("left", "right"),
        [([1, bad], [1, 1]) for bad in (0.0, -1.0, math.nan, math.inf)]
        + [([1, 1], [bad, 1]) for bad in (0.0, math.nan)],
    )
    def test_wrong_times_are_refused(self, left, right):
        """Times come in pairs, and are positive and finite."""
        with pytest.raises(ValueError, match="time"):
            estimate_ratio(left, right)


class TestCoverage:
    """How often the 99 % interval contains the true ratio, over many made-up measurements."""

    REPEATS = 1000

    def coverage(self, pairs: int, noise: float, spread: float = 0.0) -> float:
        rng = np.random.default_rng([pairs, round(1000 * noise), round(1000 * spread)])
        covered = 0
        for _ in range(self.REPEATS):
            machine = rng.lognormal(sigma=spread, size=pairs)  # slow and fast spells hit both
            variant = 0.4 * machine * rng.lognormal(sigma=noise, size=pairs)
            reference = machine * rng.lognormal(sigma=noise, size=pairs)
            ratio = estimate_ratio(list(variant), list(reference))
            covered += ratio.low <= 0.4 <= ratio.high
        return covered / self.REPEATS

    @pytest.mark.parametrize("pairs", [3, 9, 10, 40])
    @pytest.mark.parametrize(("noise", "spread"), [(0.3, 0.0), (0.02, 2.0)])
    def test_it_holds_the_truth_as_often_as_it_says(self, pairs, noise, spread):
        """Also in spells that hit both sides."""
        assert 0.98 <= self.coverage(pairs, noise, spread) < 1


class TestJudge:
    @given(st.floats(0.01, 100), st.floats(0.01, 100), st.floats(0.001, 0.5))
    def test_a_verdict_is_never_against_the_interval(self, one, other, floor):
        """A verdict follows from the interval and the noise floor."""
        low, high = sorted((one, other))
        verdict = judge(Ratio(math.sqrt(low * high), low, high, 5), floor)
        assert (verdict == "faster") == (high < 1 - floor)
        assert (verdict == "slower") == (low > 1 + floor)
        assert verdict != "same" or max(abs(low - 1), abs(high - 1)) <= floor + 1e-9
