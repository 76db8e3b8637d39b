import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from harness.measuring.timing.times import Times


def timed(way, *blocks):
    """Return a variant's `Times`; each of `blocks` lists the CPU seconds of its turns."""
    times = Times(way)
    for number, block in enumerate(blocks):
        for seconds in block:
            times.add(number, seconds, wall_s=2 * seconds, thread_cpu_s=seconds / 2)
    return times


class TestInOneProcess:
    def test_a_block_keeps_its_turns_in_order(self):
        times = timed("turns in one process", [1, 2], [8])
        assert (times.cpu_s, times.wall_s, times.thread_cpu_s) == (
            [1, 2, 8],
            [2, 4, 16],
            [0.5, 1, 4],
        )
        assert times.blocks == {0: [1, 2], 1: [8]}

    def test_the_ratio_is_over_the_blocks_that_hold_both(self):
        variant, reference = Times(), Times()
        for block, seconds in ((0, 1), (1, 2), (9, 1e6)):
            variant.add(block, seconds)
        for block, seconds in ((1, 8), (0, 4), (5, 1e9)):
            reference.add(block, seconds)
        ratio = variant.ratio_to(reference)
        assert (ratio.value, ratio.pairs, ratio.processes) == (pytest.approx(0.25), 2, 1)

    def test_each_turn_of_a_block_makes_a_pair(self):
        variant = timed("turns in one process", [1, 2])
        ratio = variant.ratio_to(timed("turns in one process", [4, 4]))
        assert ratio.pairs == 2
        assert ratio.value == pytest.approx(math.sqrt(1 / 4 * 2 / 4))

    def test_without_a_common_block_there_is_no_ratio(self):
        assert Times().ratio_to(Times()) is None
        assert timed("turns", [1]).ratio_to(Times("turns")) is None


class TestInSeveralProcesses:
    def test_each_process_counts_as_one(self):
        # Hundreds of pairs in each of three processes cannot hide that the processes differ.
        blocks = [[level] * 200 for level in (1.0, 1.1, 1.2)]
        ratio = timed("turns", *blocks).ratio_to(timed("turns", *([[1.0] * 200] * 3)))
        assert (ratio.pairs, ratio.processes, ratio.way) == (600, 3, "turns")
        assert ratio.low < 0.8
        assert ratio.high > 1.4
        assert ratio.pair_spread == pytest.approx(0)
        assert ratio.process_spread == pytest.approx(0.09, abs=0.01)

    def test_both_spreads_are_found(self):
        rng = np.random.default_rng(1)
        levels = np.exp(rng.normal(0, 0.02, 300))
        blocks = [level * np.exp(rng.normal(0, 0.1, 20)) for level in levels]
        ratio = timed("turns", *blocks).ratio_to(timed("turns", *([[1.0] * 20] * 300)))
        assert ratio.pair_spread == pytest.approx(0.1, rel=0.05)
        assert ratio.process_spread == pytest.approx(0.02, rel=0.3)

    def test_side_by_side_a_process_is_one_pair_of_means(self):
        variant = timed("side by side", [2.0], [4.0])
        ratio = variant.ratio_to(timed("side by side", [1.0, 3.0], [4.0, 4.0, 4.0]))
        assert (ratio.value, ratio.pairs, ratio.processes) == (pytest.approx(1), 2, 2)
        assert ratio.process_spread is None

    @pytest.mark.parametrize("way", ["turns", "side by side", "turns in one process"])
    @pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
    def test_a_time_that_is_none_is_refused(self, way, seconds):
        with pytest.raises(ValueError, match="a time"):
            timed(way, [seconds]).ratio_to(timed(way, [1.0]))

    @given(st.lists(st.floats(0.1, 10), min_size=2, max_size=30), st.floats(0.01, 100))
    def test_the_ratio_follows_the_times(self, seconds, factor):
        one = [[each, each] for each in seconds]
        ratio = timed("turns", *[[a * factor, b * factor] for a, b in one]).ratio_to(
            timed("turns", *one)
        )
        assert ratio.value == pytest.approx(factor)
        assert ratio.low <= ratio.value <= ratio.high
