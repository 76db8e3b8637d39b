"""Calls on a made-up clock, and an observer that records their turns."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle

import numpy as np
from fake_clock import FakeClock

from harness.contract import Prepared
from harness.measuring.timing.sampling import SamplingRequest, sample
from harness.measuring.timing.times import Times
from harness.measuring.timing.turns import Observer, Sample
from harness.model.settings import SamplingRule

CALL = 1.0  # seconds; long enough that no call is repeated to make a sample


def taking(clock: FakeClock, seconds: float | Callable[[], float], **options) -> Prepared:
    """Return a prepared variant with calls that take these seconds."""

    def run() -> str:
        clock.advance(seconds() if callable(seconds) else seconds)
        return "decision"

    return Prepared(run, **options)


class Diary(Observer):
    """An observer of `sample` that records which turns began and which turns counted."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.ended: list[tuple[str, int]] = []

    def turn_begins(self, name: str) -> None:
        self.began.append(name)

    def block_ended(self, block: int, turns: Sequence[Sample]) -> None:
        self.ended += [(turn.name, block) for turn in turns]

    def block(self, number: int) -> list[str]:
        return [name for name, block in self.ended if block == number]


def run_sample(
    clock: FakeClock,
    prepared: dict[str, Prepared],
    reference: str | None = "reference",
    limits: Mapping[str, Sequence[float]] | None = None,
    **rule,
) -> tuple[dict[str, Times], Diary]:
    diary = Diary()
    rule = SamplingRule(**{"seconds": 1e9, "warmup_seconds": 1e9, **rule})
    request = SamplingRequest(prepared, reference, rule, limits or {}, clock=clock)
    return sample(request, diary), diary


def noisy(clock: FakeClock, mean: float, noise: float, seed: int) -> Prepared:
    rng = np.random.default_rng(seed)
    return taking(clock, lambda: mean * float(rng.lognormal(sigma=noise)))


def wavering(clock: FakeClock) -> Prepared:
    """Return a variant that alternates between half and twice the reference's time.

    No number of blocks leads to a verdict on it.
    """
    seconds = cycle([CALL / 2, CALL * 2, CALL * 2, CALL / 2, CALL / 2, CALL / 2, CALL * 2])
    return taking(clock, lambda: next(seconds))


def turn_seconds(clock: FakeClock, run: Callable[[], object]) -> tuple[list[float], Diary]:
    """Sample one variant; return the seconds of each turn that counted."""
    turns: list[float] = []

    @contextmanager
    def installed():
        clock.advance(1)  # slow to install, which is no part of the call
        began = clock.wall()
        yield
        turns.append(clock.wall() - began)

    prepared = {"reference": Prepared(run, installed=installed)}
    _, diary = run_sample(clock, prepared, least_blocks=3)
    return turns[-len(diary.ended) :], diary
