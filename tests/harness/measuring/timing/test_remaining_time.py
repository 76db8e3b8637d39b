"""The estimated remaining time of simulated runs is right within a factor of 1.5.

Comparisons are timed on a simulated noisy machine; suites are sequences of them.
"""

import random
from collections.abc import Callable, Iterable
from statistics import fmean

import pytest
from noisy_machine import Calls, NoisyMachine

from harness.measuring.time_left import TIMING, ComparisonTime, Piece, TimeLeft
from harness.measuring.timing.forecast import blocks_needed
from harness.measuring.timing.sampling import Group, SamplingRequest, time_groups
from harness.measuring.timing.turns import Observer
from harness.measuring.timing.verdict import CONFIDENCE, estimate_ratio
from harness.measuring.timing.ways import Variants
from harness.model.settings import SamplingRule

SEEDS = range(20)
Tell = Callable[[float | None], None]


class Run:
    """A run on a simulated machine, with what it said of its remaining time, and when."""

    def __init__(self, seed: int) -> None:
        self.machine, self.rng = NoisyMachine(seed), random.Random(seed)
        self.said: list[tuple[float, float]] = []

    def tell(self, seconds: float | None) -> None:
        if seconds is not None:
            self.said.append((self.machine.now, seconds))

    def compare(
        self, way: str, seconds: dict[str, float], check_s: float, in_time: float, tell: Tell
    ) -> None:
        """Check and time variants, whose calls take these seconds."""
        machine = self.machine
        rule = SamplingRule(seconds=in_time, counts_work=False)
        left = ComparisonTime(seconds, seconds, rule, machine.wall)
        for name, call in seconds.items():
            left.begins(name)
            machine.now += self.rng.uniform(0.7, 1.3) * check_s + call
            left.check_ended(name, call)
            tell(left.seconds())
        left.begins(TIMING)
        machine.now += check_s + 2 * sum(seconds.values())  # set-up, and warm-up calls

        class Teller(Observer):
            def block_ended(self, block, turns, left_s: float) -> None:
                left.expects(TIMING, left_s)
                tell(left.seconds())

        calls = Calls(machine, seconds)
        time_block = {"turns": calls.in_turns, "side by side": calls.side_by_side}[way]
        request = SamplingRequest({}, "reference", rule, clock=machine)
        group = Group(request, way, list(seconds), time_block)
        time_groups([group], Variants({}, {}, {}, machine, Teller()), request)

    def right(self) -> Iterable[bool]:
        """Yield whether estimates were right, after the first third of the run.

        They are shown in whole seconds, so an error of less than a second does not count.
        """
        end = self.machine.now
        for now, seconds in self.said:
            if now >= end / 3:
                left = end - now
                yield left / 1.5 <= seconds <= left * 1.5 or abs(seconds - left) < 1.0


def share_right(runs: Iterable[Run]) -> float:
    found = [right for run in runs for right in run.right()]
    assert len(found) > 20
    return fmean(found)


@pytest.mark.parametrize(
    ("way", "call", "factors", "check_s", "in_time"),
    [
        ("turns", 0.002, (0.5,), 1.0, 30.0),  # a verdict after few blocks
        ("turns", 0.002, (0.1, 0.4, 0.5, 0.8, 2.0), 0.5, 30.0),
        ("side by side", 1.0, (0.5, 0.3), 2.0, 60.0),
        ("turns", 0.002, (1.03,), 1.0, 30.0),  # no verdict, so the whole time is used
        ("side by side", 1.0, (0.97,), 2.0, 40.0),
        ("turns", 0.002, (1.05,), 1.0, 30.0),  # a small difference, found sooner or later
        ("turns", 0.002, (1.0,), 0.5, 30.0),  # the same, which takes longer to be known
        ("side by side", 5.0, (0.9, 0.5), 8.0, 30.0),  # too long for the time
    ],
)
def test_of_a_comparison(way, call, factors, check_s, in_time):
    runs = [Run(seed) for seed in SEEDS]
    names = {"reference": call} | {f"v{place}": call * f for place, f in enumerate(factors)}
    for run in runs:
        run.compare(way, names, check_s, in_time, run.tell)
    assert share_right(runs) >= 0.8


def a_suite(seed: int, problems: int, factors: tuple[float, ...]) -> Run:
    """Run comparisons of two families, with one to three variants, in random order."""
    run = Run(seed)
    sizes = {f"{place} {place % 2}": run.rng.randint(2, 4) for place in range(problems)}
    names = list(sizes)
    run.rng.shuffle(names)
    left = TimeLeft({name: Piece(name[-1], sizes[name]) for name in names}, now=run.machine.wall)
    for name in names:

        def tell(seconds: float | None, name: str = name) -> None:
            if seconds is not None:
                left.expects(name, seconds)
                run.tell(left.seconds())

        left.begins(name)
        others = {f"v{n}": 0.002 * run.rng.choice(factors) for n in range(1, sizes[name])}
        check_s = 1.0 if name.endswith("1") else 0.2
        run.compare("turns", {"reference": 0.002, **others}, check_s, 6.0, tell)
        left.ended(name)
        run.tell(left.seconds())
    return run


@pytest.mark.parametrize("factors", [(0.5, 0.3), (0.5, 0.3, 0.2, 1.03)])
def test_of_many_short_cells_and_of_a_mixture(factors):
    assert share_right(a_suite(seed, 24, factors) for seed in range(6)) >= 0.9


def test_narrow_intervals_need_many_blocks():
    ratio = estimate_ratio([1.05, 1 / 1.05] * 20, [1.0] * 40)

    def needed(distance: float) -> int:
        return blocks_needed(40, 40, ratio, distance, CONFIDENCE)

    assert needed(1.0) == 41, "the next look settles it"
    assert 80 < needed(0.01) < 200
    assert 1.8 < needed(0.005) / needed(0.01) < 4.4
    assert needed(0.0) > needed(0.005)


def test_without_an_interval_the_usual_spread_counts():
    ratio = estimate_ratio([2.0], [1.0])
    assert 4 <= blocks_needed(1, 1, ratio, 0.05, CONFIDENCE) <= 8
