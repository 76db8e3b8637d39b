"""Sampling on a made-up clock: warm-up, the order of turns, the end of timing, and ratios."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, cycle

import numpy as np
import pytest
from fake_clock import FakeClock
from hypothesis import given, settings, strategies as st

from harness.contract import Measured, Prepared
from harness.measuring.comparison import fill_from_times
from harness.measuring.request import CALL as A_CALL
from harness.measuring.timing.sampling import SamplingRequest, Times, sample
from harness.measuring.timing.turns import Turn
from harness.measuring.timing.verdict import judge
from harness.measuring.timing.ways import Timing
from harness.model.cell import Cell, ClockName, Ratio
from harness.model.ids import CellId
from harness.model.settings import SamplingRule

CALL = 1.0  # seconds; long enough that no call is repeated to make a sample
HERE = {
    "way": "turns in one process",
    "counts_work": False,
}  # a made-up clock does not tick in forks


def taking(clock: FakeClock, seconds: float | Callable[[], float], **options) -> Prepared:
    """Return a prepared variant with calls that take these seconds."""
    lasts = seconds if callable(seconds) else lambda: seconds
    return Prepared(lambda: clock.advance(lasts()), **options)


def noisy(clock: FakeClock, mean: float, noise: float, seed: int) -> Prepared:
    rng = np.random.default_rng(seed)
    return taking(clock, lambda: mean * float(rng.lognormal(sigma=noise)))


def wavering(clock: FakeClock) -> Prepared:
    """Return a variant without a verdict: it alternates around the reference's time."""
    seconds = cycle([CALL / 2, CALL * 2, CALL * 2, CALL / 2, CALL / 2, CALL / 2, CALL * 2])
    return taking(clock, lambda: next(seconds))


def timed(
    clock: FakeClock,
    prepared: dict[str, Prepared],
    reference: str | None = "reference",
    limits: Mapping[str, Sequence[float]] | None = None,
    compared: ClockName = "cpu",
    **rule,
) -> tuple[dict[str, Times], list[str]]:
    """Time variants; return their times, and the variants of all calls in order."""
    began: list[str] = []

    def begins(stage: str, name: str = "", processes: int = 1) -> None:
        if stage == A_CALL:
            began.append(name)

    rule = SamplingRule(**{"seconds": 1e9, "warmup_seconds": 1e9, **HERE, **rule})
    request = SamplingRequest(reference, rule, limits or {}, compared)
    return sample(Timing(prepared, clock, begins), request), began


def ratio(times: dict[str, Times], name: str) -> Ratio:
    found = times[name].ratio_to(times["reference"])
    assert found is not None
    return found


def blocks(times: dict[str, Times]) -> dict[str, int]:
    return {name: len(of_variant.blocks) for name, of_variant in times.items()}


class TestWarmUp:
    def test_it_ends_with_its_time(self, clock):
        """Long calls are hardly warmed up."""
        prepared = {name: taking(clock, 10) for name in "abcdef"}
        times, began = timed(clock, prepared, None, least_blocks=1, warmup_seconds=15)
        assert [len(each.cpu_s) for each in times.values()] == [2] * 6
        assert len(began) - 12 <= 8

    @pytest.mark.parametrize("seconds", [1e-5, 3e-4, 0.0019])
    def test_short_calls_are_repeated_until_the_clock_resolves_them(self, clock, seconds):
        """Only a call that is short after the first makes a turn of several calls."""
        calls, lengths = count(), []

        @contextmanager
        def installed():
            clock.advance(1)  # slow to install, which is no part of the call
            began = clock.wall()
            yield
            lengths.append(clock.wall() - began)

        def run() -> None:
            clock.advance(seconds if next(calls) else 1.0)

        times, _ = timed(clock, {"reference": Prepared(run, installed)}, least_blocks=3)
        assert all(0.00199 <= length <= 0.02 for length in lengths[2:])
        assert times["reference"].wall_s == pytest.approx([seconds] * 6)


class TestOrder:
    def test_each_block_runs_all_and_then_all_in_reverse(self, clock):
        """The order differs from block to block, and depends on the seed alone."""
        names = ["reference", "a", "b", "c"]

        def orders(seed: int) -> list[list[str]]:
            prepared = {name: taking(clock, CALL) for name in names}
            _, began = timed(clock, prepared, None, least_blocks=6, seed=seed)
            turns = began[2 * len(names) :]
            return [turns[start : start + 8] for start in range(0, len(turns), 8)]

        random.seed(1)
        first = orders(7)
        assert len(first) == 6
        assert all(block == block[::-1] for block in first)
        assert all(sorted(block[:4]) == sorted(names) for block in first)
        assert len(set(map(tuple, first))) > 2
        random.seed(2)
        assert orders(7) == first
        assert orders(8) != first

    @settings(max_examples=15)
    @given(
        st.integers(0, 1000),
        st.floats(0.0001, 0.01),
        st.lists(st.floats(0.5, 50), min_size=1, max_size=4),
    )
    def test_a_linear_drift_cancels(self, seed, drift, costs):
        """A machine that becomes slower steadily changes no ratio."""
        clock = FakeClock()
        turns = count()

        def drifting(cost: float) -> Prepared:
            return taking(clock, lambda: cost * (1 + drift * next(turns)))

        prepared = {"reference": drifting(CALL)}
        prepared |= {f"v{index}": drifting(cost) for index, cost in enumerate(costs)}
        times, _ = timed(clock, prepared, least_blocks=3, most_blocks=3, seed=seed)
        for index, cost in enumerate(costs):
            found = ratio(times, f"v{index}")
            # By the end, the last turn takes up to a third longer than the first.
            assert math.isclose(found.value, cost / CALL, rel_tol=drift**2 * len(prepared) ** 2)
            assert found.low <= cost / CALL <= found.high


class TestStopping:
    def test_decided_variants_do_not_run_again(self, clock):
        """The reference runs on with the variant that is open."""
        prepared = {
            "reference": taking(clock, CALL),
            "faster": taking(clock, CALL / 2),
            "slower": taking(clock, CALL * 2),
            "same": taking(clock, CALL * 1.001),
            "open": wavering(clock),
        }
        times, _ = timed(clock, prepared, least_blocks=3, most_blocks=5)
        assert list(blocks(times).values()) == [5, 3, 3, 3, 5]

    def test_a_difference_must_be_surer_than_what_is_reported(self, clock):
        """Three blocks of this are beyond the floor at 99 %, and not at 99.9 %."""
        costs = cycle([1.5, 1.2, 1.5, 1.2, 1.35, 1.35])
        prepared = {"reference": taking(clock, CALL), "slower": taking(clock, lambda: next(costs))}
        times, _ = timed(clock, prepared, warmup_seconds=0, least_blocks=3)
        assert blocks(times)["slower"] > 3
        assert judge(ratio(times, "slower")) == "slower"

    def test_a_ratio_near_a_goals_limit_runs_on(self, clock):
        """Timing goes on until a ratio is above or below each of its limits."""
        prepared = {"reference": taking(clock, CALL)}
        prepared |= {
            name: noisy(clock, CALL / 2, 0.1, seed)
            for name, seed in (("near", 4), ("clear", 2), ("free", 3))
        }
        limits = {"near": [0.9, 0.5], "clear": [0.9]}
        times, _ = timed(clock, prepared, limits=limits, least_blocks=3, most_blocks=8)
        assert list(blocks(times).values()) == [8, 8, 3, 3]

    def test_without_a_reference_all_run_the_least_blocks_if_there_is_time(self, clock):
        """Without a ratio there is nothing to settle."""
        prepared = {"a": taking(clock, CALL), "b": noisy(clock, CALL, 0.6, seed=1)}
        for seconds, number in ((1e9, 4), (CALL, 1)):
            times, _ = timed(clock, prepared, None, least_blocks=4, seconds=seconds)
            assert set(blocks(times).values()) == {number}

    @pytest.mark.parametrize(("seconds", "number"), [(0.1, 2), (8.1, 2), (12.1, 3), (19.9, 4)])
    def test_no_block_begins_that_would_pass_the_time_but_the_second(self, clock, seconds, number):
        """A block of these takes four seconds."""
        prepared = {"reference": taking(clock, CALL), "same": taking(clock, CALL)}
        times, _ = timed(clock, prepared, least_blocks=6, seconds=seconds)
        assert blocks(times)["reference"] == number


class TestComparedTime:
    """The time that a verdict compares, and calls whose CPU time says too little."""

    def judged(
        self, clock: FakeClock, reference: Prepared, variant: Prepared, by: ClockName = "cpu"
    ) -> Cell:
        """Time a variant and its reference, and return the variant's cell."""
        times, _ = timed(clock, {"reference": reference, "variant": variant}, compared=by)
        cell_id = CellId.parse("toy/variant@toy/dgx_h100:8")
        cell = Cell(id=cell_id, reference="reference", status="ok", decision="same", clock=by)
        fill_from_times(cell, times["variant"], SamplingRule())
        return cell

    def test_a_family_compares_the_time_of_its_clock(self, clock):
        """The ratio is that of wall times or that of CPU times, as the family says."""
        both = [Prepared(lambda: clock.advance(4, 2)), Prepared(lambda: clock.advance(2, 8))]
        assert self.judged(clock, *both).ratio.value == pytest.approx(4)
        assert self.judged(clock, *both, by="wall").ratio.value == pytest.approx(0.5)

    @pytest.mark.parametrize("who_waits", ["reference", "variant"])
    def test_cpu_time_gives_no_verdict_on_a_call_that_waits(self, clock, who_waits):
        """A call that mostly waits is neither faster nor slower by its CPU time."""
        calls = [
            Prepared(lambda: clock.advance(CALL, CALL)),
            Prepared(lambda: clock.advance(CALL, CALL / 100, waits=1)),
        ]
        if who_waits == "reference":
            calls.reverse()
        cell = self.judged(clock, *calls)
        assert cell.verdict == "inconclusive"
        assert ("of reference" in cell.verdict_reason) == (who_waits == "reference")
        assert self.judged(clock, *calls, by="wall").verdict == "same"
        # Wall time that other programs took is no waiting: the call never gave its core up.
        busy = Prepared(lambda: clock.advance(20 * CALL, CALL))
        assert self.judged(clock, busy, busy).verdict == "same"

    @pytest.mark.parametrize("leaves", ["in set-up", "in its first call", "nothing"])
    def test_a_variant_with_helpers_of_its_own_is_not_forked(self, clock, monkeypatch, leaves):
        """A variant whose threads or processes go on has a remark, because a fork lacks them."""
        running = [3]
        monkeypatch.setattr("harness.measuring.timing.sampling.helpers", lambda: running[-1])

        def run() -> None:
            if leaves == "in its first call" and len(running) == 1:
                running.append(4)
            clock.advance(CALL)

        variant = Prepared(run, may_fork=leaves != "in set-up")
        cell = self.judged(clock, taking(clock, CALL), variant)
        assert bool(cell.remark) == (leaves != "nothing")
        assert cell.verdict == "same"

    @pytest.mark.parametrize("cpu_s", [0.0, -1.0, math.nan])
    def test_a_time_that_is_none_does_not_stop_the_others(self, clock, cpu_s):
        """A variant without a valid time has no ratio, and leaves the others judged."""
        timeless = Prepared(lambda: Measured("decision", wall_s=1.0, cpu_s=cpu_s))
        cell = self.judged(clock, taking(clock, CALL), timeless)
        assert (cell.ratio, cell.verdict) == (None, "inconclusive")
        prepared = {
            "reference": taking(clock, CALL),
            "timeless": timeless,
            "faster": taking(clock, CALL / 2),
        }
        times, _ = timed(clock, prepared, least_blocks=3, most_blocks=4)
        assert judge(ratio(times, "faster")) == "faster"


def times_of(way: str, *blocks_s: Sequence[float]) -> Times:
    """Return a variant's times; each block lists the CPU seconds of its turns."""
    times = Times(way)
    for number, block in enumerate(blocks_s):
        for seconds in block:
            times.add(number, Turn(2 * seconds, seconds, seconds / 2))
    return times


class TestRatio:
    def test_it_is_over_the_blocks_that_hold_both(self):
        """A block with only one of the two says nothing."""
        variant = Times(blocks={0: [1], 1: [2], 9: [1e6]})
        found = variant.ratio_to(Times(blocks={1: [8], 0: [4], 5: [1e9]}))
        assert (found.value, found.pairs, found.processes) == (pytest.approx(0.25), 2, 1)
        assert times_of("turns", [1]).ratio_to(Times("turns")) is None

    def test_each_process_counts_as_one(self):
        """Hundreds of pairs in each of three processes cannot hide that the processes differ."""
        variant = [[level] * 200 for level in (1.0, 1.1, 1.2)]
        found = times_of("turns", *variant).ratio_to(times_of("turns", *([[1.0] * 200] * 3)))
        assert (found.pairs, found.processes, found.way) == (600, 3, "turns")
        assert found.low < 0.8
        assert found.high > 1.4
        assert found.pair_spread == pytest.approx(0)
        assert found.process_spread == pytest.approx(0.09, abs=0.01)

    def test_side_by_side_a_process_is_one_pair_of_means(self):
        """Turns side by side are no pairs; and their wall time is that of a shared core."""
        variant = times_of("side by side", [2.0], [4.0])
        found = variant.ratio_to(times_of("side by side", [1.0, 3.0], [4.0, 4.0, 4.0]))
        assert (found.value, found.pairs, found.processes) == (pytest.approx(1), 2, 2)
        assert found.process_spread is None
        assert variant.wall_s == []
