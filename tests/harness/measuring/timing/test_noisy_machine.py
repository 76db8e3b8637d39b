"""Verdicts on a simulated noisy machine: how often and how soon they are right.

The speed switches every 10 to 300 milliseconds, by so much that a pair of neighbouring calls
differs by 15 %. Each process has a memory layout of its own, which changes a call by 0.6 %.
"""

import json
import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.measuring.timing.sampling import Group, SamplingRequest, Times, time_groups
from harness.measuring.timing.turns import Turn
from harness.measuring.timing.verdict import judge
from harness.measuring.timing.ways import Timing
from harness.model.settings import SamplingRule

PAIR = 0.15
LAYOUT = 0.006
SLICE = 0.003
FORK = 0.02


class NoisyMachine:
    """A core with a switching speed; `wall` returns its elapsed time in seconds."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.until = 0.0
        self.speed = 1.0

    def wall(self) -> float:
        return self.now

    def work(self, seconds: float) -> float:
        """Do work that takes `seconds` at speed 1; return the seconds that it takes here."""
        started = self.now
        while seconds > 1e-12:
            if self.now >= self.until:
                self.speed = math.exp(self.rng.gauss(0, PAIR / math.sqrt(2)))
                self.until = self.now + self.rng.uniform(0.01, 0.3)
            spent = min(seconds / self.speed, self.until - self.now)
            self.now += spent
            seconds -= spent * self.speed
        return self.now - started


class Calls:
    """Calls of variants on a noisy machine; `seconds` is each variant's time at speed 1."""

    def __init__(self, machine: NoisyMachine, seconds: dict[str, float]) -> None:
        self.machine, self.seconds = machine, seconds

    def _laid_out(self, names: Sequence[str]) -> dict[str, float]:
        self.machine.now += FORK
        rng = self.machine.rng
        return {name: self.seconds[name] * math.exp(rng.gauss(0, LAYOUT)) for name in names}

    def in_turns(self, _, names: Sequence[str], rng: random.Random) -> dict[str, list[Turn]]:
        """Return turns in one process, for 0.3 seconds."""
        costs = self._laid_out(names)
        order, until = list(names), self.machine.now + 0.3
        turns: dict[str, list[Turn]] = {name: [] for name in names}
        while not turns[names[0]] or self.machine.now < until:
            rng.shuffle(order)
            for name in (*order, *reversed(order)):
                turns[name].append(turn(self.machine.work(costs[name])))
        return turns

    def side_by_side(self, _, names: Sequence[str], __) -> dict[str, list[Turn]]:
        """Return turns of calls that share a core by time slices, until each variant has one."""
        costs = self._laid_out(names)
        longest = max(costs.values())
        done, spent = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
        turns: dict[str, list[Turn]] = {name: [] for name in names}
        while not all(turns.values()):
            for name in names:
                share = SLICE * costs[name] / longest
                spent[name] += self.machine.work(share)
                done[name] += share
                if done[name] >= costs[name]:
                    turns[name].append(turn(spent[name]))
                    done[name], spent[name] = done[name] - costs[name], 0.0
        return turns


def turn(seconds: float) -> Turn:
    return Turn(seconds, seconds, None)


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
def test_intervals_hold_the_truth_on_recorded_noise(way, processes):
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
