import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from harness.measuring.timing.verdict import NOISE_FLOOR, estimate_ratio, explain, judge
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
    def test_the_interval_holds_the_value(self, times):
        ratio = estimate_ratio(*times)
        assert 0 <= ratio.low <= ratio.value <= ratio.high
        assert ratio.pairs == len(times[0])

    @given(pairs_of(1))
    def test_the_value_lies_within_the_pairs_ratios(self, times):
        ratios = [left / right for left, right in zip(*times, strict=True)]
        value = estimate_ratio(*times).value
        assert min(ratios) * (1 - 1e-9) <= value <= max(ratios) * (1 + 1e-9)

    @settings(max_examples=50)
    @given(pairs_of(4))
    def test_swapping_the_sides_inverts_the_ratio(self, times):
        ratio, swapped = estimate_ratio(*times), estimate_ratio(*times[::-1])
        assert close(swapped.value, 1 / ratio.value)
        assert close(swapped.low, 1 / ratio.high)
        assert close(swapped.high, 1 / ratio.low)

    @settings(max_examples=50)
    @given(pairs_of(2), st.floats(min_value=1e-3, max_value=1e3))
    def test_scaling_both_sides_changes_nothing(self, times, factor: float):
        ratio = estimate_ratio(*times)
        scaled = estimate_ratio(*([factor * time for time in side] for side in times))
        assert close(scaled.value, ratio.value)
        assert close(scaled.low, ratio.low)
        assert close(scaled.high, ratio.high)

    @settings(max_examples=50)
    @given(pairs_of(2), st.floats(min_value=1e-2, max_value=1e2))
    def test_scaling_one_side_scales_the_ratio(self, times, factor: float):
        ratio = estimate_ratio(*times)
        scaled = estimate_ratio([factor * time for time in times[0]], times[1])
        assert close(scaled.value, factor * ratio.value)
        assert close(scaled.low, factor * ratio.low)
        assert close(scaled.high, factor * ratio.high)

    def test_a_constant_ratio_is_found_exactly(self):
        ratio = estimate_ratio([2, 4, 8], [4, 8, 16])
        assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.5, 0.5, 0.5))
        assert ratio.pairs == 3

    def test_a_drift_of_both_sides_changes_nothing(self):
        drift = [1.0, 3.0, 9.0, 27.0]
        ratio = estimate_ratio([0.3 * time for time in drift], drift)
        assert close(ratio.low, 0.3)
        assert close(ratio.high, 0.3)

    @given(pairs_of(10))
    def test_the_most_extreme_tenth_on_either_side_does_not_matter(self, times):
        logs = [math.log(left / right) for left, right in zip(*times, strict=True)]
        wild = sorted(range(len(logs)), key=logs.__getitem__)[-(len(logs) // 10) :]
        spoilt = [left * 1e3 if at in wild else left for at, left in enumerate(times[0])]
        assert estimate_ratio(spoilt, times[1]).value == estimate_ratio(*times).value

    def test_one_wild_pair_does_not_widen_the_interval(self):
        calm = [1.0, 1.01, 0.99, 1.005, 0.995, 1.0, 1.01, 0.99, 1.0, 1.005, 0.995]
        wild = estimate_ratio([*calm, 9.0], [1.0] * 12)
        assert wild.high / wild.low < 1.04

    def test_times_far_apart_are_told_without_overflow(self):
        ratio = estimate_ratio([1e300, 1e-300, 1.0], [1e-5, 1e5, 1.0])
        assert ratio.low == 0.0
        assert ratio.high == math.inf

    def test_one_pair_has_no_interval(self):
        ratio = estimate_ratio([3.0], [2.0])
        assert ratio == Ratio(ratio.value, 0.0, math.inf, 1)
        assert ratio.value == pytest.approx(1.5)
        assert judge(ratio) == "inconclusive"
        assert explain(ratio) == "one pair has no interval"

    @pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
    @pytest.mark.parametrize("side", [0, 1])
    def test_a_time_that_is_none_is_refused(self, bad: float, side: int):
        times = [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
        times[side][1] = bad
        with pytest.raises(ValueError, match="time"):
            estimate_ratio(*times)

    @pytest.mark.parametrize(("left", "right"), [([], []), ([1.0], []), ([1.0, 2.0], [1.0])])
    def test_times_must_come_in_pairs(self, left: list[float], right: list[float]):
        with pytest.raises(ValueError, match="times must come in pairs, at least one"):
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

    @pytest.mark.parametrize("pairs", [3, 5, 9, 10, 15, 40])
    @pytest.mark.parametrize("noise", [0.02, 0.3])
    def test_it_holds_the_truth_as_often_as_it_says(self, pairs: int, noise: float):
        assert 0.98 <= self.coverage(pairs, noise) < 1

    def test_spells_that_hit_both_sides_do_not_widen_it(self):
        rng = np.random.default_rng(0)
        machine = rng.lognormal(sigma=2, size=10)
        variant = 0.4 * machine * rng.lognormal(sigma=0.02, size=10)
        ratio = estimate_ratio(list(variant), list(machine))
        assert ratio.high / ratio.low < 1.1
        assert 0.98 <= self.coverage(5, 0.02, spread=2.0) < 1

    def test_more_pairs_narrow_it(self):
        rng = np.random.default_rng(0)
        variant, reference = rng.lognormal(sigma=0.1, size=(2, 40))
        few = estimate_ratio(list(variant[:10]), list(reference[:10]))
        many = estimate_ratio(list(variant), list(reference))
        assert many.high / many.low < few.high / few.low


def false_verdicts(noise: float, pairs: int, repeats: int = 600) -> float:
    rng = np.random.default_rng([pairs, round(1000 * noise)])
    wrong = 0
    for _ in range(repeats):
        sides = rng.lognormal(sigma=noise, size=(2, pairs))
        verdict = judge(estimate_ratio(list(sides[0]), list(sides[1])))
        wrong += verdict in ("faster", "slower")
    return wrong / repeats


@pytest.mark.parametrize(
    ("noise", "pairs", "most"), [(0.01, 3, 0.002), (0.05, 3, 0.01), (0.3, 3, 0.02), (0.3, 10, 0.02)]
)
def test_two_equal_variants_seldom_seem_to_differ(noise: float, pairs: int, most: float):
    assert false_verdicts(noise, pairs) <= most


def test_two_quiet_equal_variants_are_called_the_same():
    rng = np.random.default_rng(0)
    same = 0
    for _ in range(100):
        sides = rng.lognormal(sigma=0.01, size=(2, 20))
        same += judge(estimate_ratio(list(sides[0]), list(sides[1]))) == "same"
    assert same >= 99


class TestJudge:
    @pytest.mark.parametrize(
        ("low", "high", "verdict"),
        [
            (0.40, 0.60, "faster"),
            (0.40, 0.969, "faster"),
            (0.40, 0.971, "inconclusive"),
            (0.40, 1.50, "inconclusive"),
            (0.971, 1.029, "same"),
            (1 - NOISE_FLOOR, 1 + NOISE_FLOOR, "same"),
            (0.971, 1.031, "inconclusive"),
            (1.029, 1.50, "inconclusive"),
            (1.031, 1.50, "slower"),
            (2.0, 3.0, "slower"),
            (0.0, math.inf, "inconclusive"),
        ],
    )
    def test_the_whole_interval_decides(self, low: float, high: float, verdict: str):
        assert judge(Ratio(math.sqrt(low * min(high, 1e9)), low, high, 5)) == verdict

    def test_the_noise_floor_can_be_set(self):
        ratio = Ratio(0.9, 0.88, 0.92, 5)
        assert judge(ratio, noise_floor=0.03) == "faster"
        assert judge(ratio, noise_floor=0.10) == "inconclusive"
        assert judge(ratio, noise_floor=0.15) == "same"

    @given(st.floats(0.01, 100), st.floats(0.01, 100), st.floats(0.001, 0.5))
    def test_a_verdict_is_never_against_the_interval(self, one: float, other: float, floor: float):
        low, high = sorted((one, other))
        verdict = judge(Ratio(math.sqrt(low * high), low, high, 5), floor)
        assert (verdict == "faster") == (high < 1 - floor)
        assert (verdict == "slower") == (low > 1 + floor)
        assert verdict != "same" or max(abs(low - 1), abs(high - 1)) <= floor + 1e-9

    @pytest.mark.parametrize(
        ("low", "high", "words"),
        [
            (0.40, 0.60, "the whole interval is below 1 ± 3% after 5 pairs"),
            (2.0, 3.0, "the whole interval is above 1 ± 3% after 5 pairs"),
            (0.99, 1.01, "the whole interval is within 1 ± 3% after 5 pairs"),
            (0.90, 1.01, "the interval crosses 1 ± 3% after 5 pairs"),
        ],
    )
    def test_the_reason_says_where_the_interval_lies(self, low: float, high: float, words: str):
        assert explain(Ratio((low + high) / 2, low, high, 5)) == words

    def test_the_reason_says_why_there_are_no_more_pairs_only_where_it_is_open(self):
        words = explain(Ratio(1.0, 0.90, 1.01, 5), ended="the 20 s are spent")
        assert words == "the interval crosses 1 ± 3% after 5 pairs, and the 20 s are spent"
        assert "spent" not in explain(Ratio(0.5, 0.4, 0.6, 5), ended="the 20 s are spent")
        assert explain(Ratio(1.0, 0.0, math.inf, 1), ended="time is up").endswith(
            ", and time is up"
        )
