"""Calls side by side, in real processes."""

import random
import time
from functools import partial

import pytest

from harness.contract import Prepared
from harness.measuring.selftest.rounds import copies
from harness.measuring.timing.clock import SystemClock
from harness.measuring.timing.times import Times
from harness.measuring.timing.ways import SideBySide, Variants, cores

pytestmark = pytest.mark.skipif(not cores(), reason="processes cannot be moved to a core")


def busy(seconds: float) -> Prepared[str]:
    """Return what uses so much CPU time."""

    def run() -> str:
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass
        return "decided"

    return Prepared(run)


def variants(took: dict[str, float], known: dict[str, float]) -> Variants:
    """Return variants that take so long, and are known to take as long as that."""
    prepared = {name: busy(seconds) for name, seconds in took.items()}
    ones = dict.fromkeys(took, 1)
    return Variants(prepared, ones, known, SystemClock(), lambda _: None, lambda *_: None)


def test_a_first_block_with_wrong_shares_is_measured_anew():
    asked: list[int] = []
    side_by_side = SideBySide(None, asked.append, cores(), seconds=0.05)
    wrong = variants({"a": 0.05, "b": 0.05}, {"a": 0.05, "b": 0.2})
    samples = side_by_side(wrong, ["a", "b"], random.Random(0))
    assert asked == [2, 2]
    assert {sample.name for sample in samples} == {"a", "b"}
    side_by_side(wrong, ["a", "b"], random.Random(0))
    assert asked == [2, 2, 2]


def test_each_has_a_turn_and_only_whole_ones_count():
    side_by_side = SideBySide(None, lambda _: None, cores(), seconds=0.1)
    took = {"short": 0.02, "long": 0.14}
    samples = side_by_side(variants(took, took), list(took), random.Random(0))
    by_name = {name: [s.cpu_s for s in samples if s.name == name] for name in took}
    assert len(by_name["short"]) >= len(by_name["long"]) >= 1
    for name, seconds in took.items():
        assert min(by_name[name]) >= seconds
    assert all(sample.wall_s is None for sample in samples)


@pytest.mark.long
@pytest.mark.parametrize("factor", [0.5, 3, 20])
def test_the_ratio_of_real_calls_is_that_of_their_work(factor: float):
    ms = 100 if factor < 1 else 20
    percent = round(100 * factor) - 100
    prepared = {
        "reference": Prepared(partial(copies, ms)),
        "variant": Prepared(partial(copies, ms, percent)),
    }
    seconds = {"reference": ms / 1000, "variant": factor * ms / 1000}
    ones = dict.fromkeys(prepared, 1)
    both = Variants(prepared, ones, seconds, SystemClock(), lambda _: None, lambda *_: None)
    side_by_side = SideBySide(None, lambda _: None, cores())
    rng = random.Random(0)
    variant, reference = Times("side by side"), Times("side by side")
    for block in range(12):
        for sample in side_by_side(both, list(prepared), rng):
            times = variant if sample.name == "variant" else reference
            times.add(block, sample.cpu_s)
    ratio = variant.ratio_to(reference)
    assert ratio is not None
    assert 0.97 * ratio.low < factor < 1.03 * ratio.high
    assert ratio.high / ratio.low < 1.25
