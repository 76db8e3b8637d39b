"""Verdicts on a simulated noisy machine: how often and how soon they are right."""

import json
import math
import random
from collections import Counter
from pathlib import Path

import pytest
from noisy_machine import Calls, NoisyMachine

from harness.measuring.timing.sampling import Group, SamplingRequest, Times, time_groups
from harness.measuring.timing.turns import Turn
from harness.measuring.timing.verdict import judge
from harness.measuring.timing.ways import Timing
from harness.model.settings import SamplingRule


def verdicts(way: str, call: float, more: float, seconds: float, rounds: int) -> Counter[str]:
    """Count the verdicts of `rounds` measurements of a variant with `more` (a share) more work."""
    found: Counter[str] = Counter()
    for seed in range(rounds):
        machine = NoisyMachine(seed)
        calls = Calls(machine, {"reference": call, "variant": call * (1 + more)})
        time_block, named = {
            "turns": (calls.in_turns, "turns"),
            "side by side": (calls.side_by_side, "side by side"),
        }[way]
        rule = SamplingRule(seconds=seconds, seed=seed)
        request = SamplingRequest("reference", rule)
        group = Group(request, named, ["reference", "variant"], time_block)
        time_groups([group], Timing({}, machine), rule)
        ratio = group.times["variant"].ratio_to(group.times["reference"])
        found[judge(ratio)] += 1
    return found


WAYS = [("turns", 0.002, 30.0), ("side by side", 0.1, 30.0), ("side by side", 1.0, 12 * 2.05)]


@pytest.mark.parametrize(("way", "call", "seconds"), WAYS)
def test_equal_variants_are_called_the_same(way, call, seconds):
    """In 100 rounds at most one equal variant is called different."""
    found = verdicts(way, call, 0.0, 2 * seconds, 100)
    assert found["faster"] + found["slower"] <= 1
    assert found["inconclusive"] <= 5


@pytest.mark.parametrize(("way", "call", "seconds"), WAYS)
def test_five_per_cent_more_is_found(way, call, seconds):
    """In 95 of 100 rounds 5 % more work is called slower."""
    assert verdicts(way, call, 0.05, seconds, 100)["slower"] >= 95


RECORDED = json.loads(Path(__file__).with_name("recorded_noise.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("way", RECORDED)
@pytest.mark.parametrize("processes", [4, 10, 30])
def test_intervals_hold_the_truth_on_recorded_noise(way: str, processes: int):
    """Intervals of identical variants contain 1 as often as they say."""
    rng = random.Random(processes)
    missed = 0
    for _ in range(1000):
        variant, reference = Times(way), Times(way)
        for block, logs in enumerate(rng.sample(RECORDED[way], processes)):
            sign = rng.choice((1, -1))  # which of two identical ones is the variant
            for log in logs:
                seconds = math.exp(sign * log)
                variant.add(block, Turn(seconds, seconds, None))
                reference.add(block, Turn(1.0, 1.0, None))
        ratio = variant.ratio_to(reference)
        missed += not ratio.low <= 1 <= ratio.high
    assert missed <= 25  # 1 in 100 are expected
