"""The order in which variants take turns, and the rules for stopping."""

import math
import random
from itertools import count, cycle, pairwise

import numpy as np
import pytest
from fake_clock import FakeClock
from hypothesis import given, strategies as st
from sampled import CALL, noisy, run_sample, taking, wavering

from harness.contract import Prepared
from harness.measuring.timing.times import Times
from harness.measuring.timing.verdict import judge
from harness.model.settings import SamplingRule


class TestOrder:
    def test_each_block_runs_all_and_then_all_in_reverse(self, clock: FakeClock):
        names = ["reference", "a", "b", "c"]
        prepared = {name: noisy(clock, CALL, 0.5, seed) for seed, name in enumerate(names)}
        _, diary = run_sample(clock, prepared, least_blocks=6, most_blocks=6)
        orders = []
        for block in range(6):
            turns = diary.block(block)
            assert turns == turns[::-1]
            assert sorted(turns[: len(turns) // 2]) == sorted(set(turns))
            assert "reference" in turns
            orders.append(tuple(turns))
        assert len(set(orders)) > 2

    def test_the_order_depends_on_nothing_but_the_seed(self, clock: FakeClock):
        def orders(seed: int) -> list[tuple[str, int]]:
            prepared = {name: taking(clock, CALL) for name in ("reference", "a", "b", "c")}
            return run_sample(clock, prepared, None, least_blocks=4, seed=seed)[1].ended

        random.seed(1)
        first = orders(7)
        random.seed(2)
        assert orders(7) == first
        assert orders(8) != first

    @given(
        st.integers(0, 1000),
        st.floats(0.0001, 0.01),
        st.lists(st.floats(0.5, 50), min_size=1, max_size=4),
    )
    def test_a_linear_drift_cancels(self, seed: int, drift: float, costs: list[float]):
        clock = FakeClock()
        turns = count()

        def drifting(cost: float) -> Prepared:
            return taking(clock, lambda: cost * (1 + drift * next(turns)))

        prepared = {"reference": drifting(CALL)}
        prepared |= {f"v{index}": drifting(cost) for index, cost in enumerate(costs)}
        times, _ = run_sample(clock, prepared, least_blocks=3, most_blocks=3, seed=seed)
        for index, cost in enumerate(costs):
            ratio = times[f"v{index}"].ratio_to(times["reference"])
            assert ratio is not None
            # By the end, the last turn takes up to a third longer than the first.
            assert math.isclose(ratio.value, cost / CALL, rel_tol=drift**2 * len(prepared) ** 2)
            assert ratio.low <= cost / CALL <= ratio.high


class TestStopping:
    def test_decided_variants_do_not_run_again(self, clock: FakeClock):
        prepared = {
            "reference": taking(clock, CALL),
            "faster": taking(clock, CALL / 2),
            "slower": taking(clock, CALL * 2),
            "same": taking(clock, CALL * 1.001),
            "open": wavering(clock),
        }
        times, diary = run_sample(clock, prepared, least_blocks=3, most_blocks=5)
        assert all(set(diary.block(block)) == prepared.keys() for block in range(3))
        assert all(set(diary.block(block)) == {"reference", "open"} for block in (3, 4))
        assert diary.block(5) == []
        assert [len(times[name].blocks) for name in prepared] == [5, 3, 3, 3, 5]

    def test_each_look_has_a_tenth_more_to_see(
        self, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ):
        looked: list[int] = []
        ratio_to = Times.ratio_to

        def noted(self: Times, *arguments):
            looked.append(len(self.blocks))
            return ratio_to(self, *arguments)

        monkeypatch.setattr(Times, "ratio_to", noted)
        prepared = {"reference": taking(clock, CALL), "open": wavering(clock)}
        run_sample(clock, prepared, least_blocks=3, most_blocks=60)
        looks = list(dict.fromkeys(looked))
        assert looks[:8] == [3, 4, 5, 6, 7, 8, 9, 10]
        assert len(looks) < 32
        assert all(later >= 1.1 * sooner for sooner, later in pairwise(looks[8:]))

    def test_a_difference_must_be_surer_than_what_is_reported(self, clock: FakeClock):
        # Three blocks of this are beyond the floor at 99 %, and not at 99.9 %.
        costs = cycle([1.5, 1.2, 1.5, 1.2, 1.35, 1.35])
        prepared = {"reference": taking(clock, CALL), "slower": taking(clock, lambda: next(costs))}
        times, _ = run_sample(clock, prepared, warmup_seconds=0, least_blocks=3)
        assert len(times["slower"].blocks) > 3
        ratio = times["slower"].ratio_to(times["reference"])
        assert ratio is not None
        assert judge(ratio) == "slower"

    @pytest.mark.parametrize(("seconds", "reason"), [(50, "50 s"), (1e9, "40 blocks")])
    def test_why_it_ended_undecided_is_told(self, clock: FakeClock, seconds: float, reason: str):
        prepared = {"reference": taking(clock, CALL), "open": wavering(clock)}
        times, _ = run_sample(clock, prepared, seconds=seconds, most_blocks=40)
        rule = SamplingRule(seconds=seconds, most_blocks=40)
        assert reason in rule.why_ended(len(times["open"].blocks))

    def test_all_decided_is_the_end(self, clock: FakeClock):
        prepared = {"reference": taking(clock, CALL), "faster": taking(clock, CALL / 2)}
        _, diary = run_sample(clock, prepared, least_blocks=3, most_blocks=12)
        assert {block for _, block in diary.ended} == {0, 1, 2}

    def test_a_ratio_near_a_goals_limit_runs_on(self, clock: FakeClock):
        prepared = {
            "reference": taking(clock, CALL),
            "near": noisy(clock, CALL / 2, 0.1, seed=4),
            "clear": noisy(clock, CALL / 2, 0.1, seed=2),
            "free": noisy(clock, CALL / 2, 0.1, seed=3),
        }
        limits = {"near": [0.9, 0.5], "clear": [0.9]}
        times, _ = run_sample(clock, prepared, limits=limits, least_blocks=3, most_blocks=8)
        assert [len(times[name].blocks) for name in prepared] == [8, 8, 3, 3]

    def test_a_single_variant_runs_the_least_blocks(self, clock: FakeClock):
        _, diary = run_sample(clock, {"reference": taking(clock, CALL)}, least_blocks=4)
        assert diary.ended == [("reference", block) for block in range(4) for _ in range(2)]

    def test_without_a_reference_all_run_the_least_blocks(self, clock: FakeClock):
        prepared = {"a": taking(clock, CALL), "b": noisy(clock, CALL, 0.6, seed=1)}
        times, diary = run_sample(clock, prepared, None, least_blocks=4)
        assert {block for _, block in diary.ended} == {0, 1, 2, 3}
        assert all(len(times[name].cpu_s) == 8 for name in prepared)

    def test_without_a_reference_one_block_will_do_where_there_is_no_time(self, clock: FakeClock):
        prepared = {"a": taking(clock, CALL), "b": taking(clock, 2 * CALL)}
        _, diary = run_sample(clock, prepared, None, seconds=CALL, least_blocks=4)
        assert {block for _, block in diary.ended} == {0}

    @pytest.mark.parametrize(("seconds", "blocks"), [(0.1, 2), (8.1, 2), (12.1, 3), (19.9, 4)])
    def test_no_block_begins_that_would_pass_the_time_but_the_second(
        self, clock: FakeClock, seconds: float, blocks: int
    ):
        prepared = {"reference": taking(clock, CALL), "same": taking(clock, CALL)}  # 4 s a block
        times, _ = run_sample(clock, prepared, least_blocks=6, seconds=seconds)
        assert len(times["reference"].blocks) == blocks

    def test_two_noisy_equal_variants_seldom_seem_to_differ(self):
        # Looking again and again whether the verdict is there must not make it come by chance.
        wrong, repeats = 0, 300
        rng = np.random.default_rng(0)
        for seed in range(repeats):
            clock = FakeClock()
            prepared = {
                name: taking(clock, lambda: float(rng.lognormal(sigma=0.4)))
                for name in ("reference", "equal")
            }
            times, _ = run_sample(clock, prepared, seed=seed, most_blocks=60)
            ratio = times["equal"].ratio_to(times["reference"])
            assert ratio is not None
            wrong += judge(ratio) in ("faster", "slower")
        assert wrong / repeats <= 0.04
