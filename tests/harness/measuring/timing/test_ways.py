"""Methods of timing calls, in real processes.

The processes are forked from one with few imports, because each fork copies all its objects.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.contract import Prepared
from harness.contract.variants import Variant
from harness.execution.child import run
from harness.execution.worker import Report, Stage
from harness.measuring.timing import ways
from harness.measuring.timing.sampling import SamplingRequest, Times, sample
from harness.measuring.timing.turns import Turn
from harness.measuring.timing.ways import SideBySide, Timing, cores
from harness.model.cell import Ratio, Way
from harness.model.settings import SamplingRule

pytestmark = pytest.mark.skipif(not cores(), reason="processes cannot be moved to a core")


def in_child(work: Callable[..., Any], *arguments: Any) -> Any:
    return run(work, *arguments, first=Stage("timing", 300.0))


def busy(seconds: float) -> Prepared[str]:
    """Return a prepared variant with calls that use `seconds` of CPU time."""

    def run() -> str:
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass
        return "decided"

    return Prepared(run)


def variants(took: dict[str, float], known: dict[str, float], **more: Any) -> Timing:
    """Return variants that take `took` seconds; `known` are the seconds assumed beforehand."""
    prepared = {name: busy(seconds) for name, seconds in took.items()}
    return Timing(prepared, calls=dict.fromkeys(took, 1), seconds=known, **more)


def compared(prepared: dict[str, Prepared[str]], **rule: Any) -> dict[str, Times]:
    """Time variants for a fraction of a second, and compare them with the first."""
    rule = SamplingRule(**{"seconds": 0.2, "counts_work": False, **rule})
    return sample(Timing(prepared), SamplingRequest(next(iter(prepared)), rule))


def block_of(took: dict[str, float], _: Report) -> dict[str, list[Turn]]:
    side_by_side = SideBySide(cores(), seconds=0.1)
    return side_by_side(variants(took, took), list(took), random.Random(0))


def test_each_has_a_turn_and_only_whole_ones_count():
    """Side by side, a short call has as many turns as fit beside the long one."""
    took = {"short": 0.02, "long": 0.14}
    turns = in_child(block_of, took)
    assert len(turns["short"]) >= len(turns["long"]) >= 1
    for name, seconds in took.items():
        assert min(turn.cpu_s for turn in turns[name]) >= seconds


def way_of(set_up_s: float, _: Report) -> Way:
    """Return the way in which calls are timed after a set-up of these seconds."""

    @contextmanager
    def installed() -> Iterator[None]:
        busy(set_up_s).run()
        yield

    both = {"a": busy(0.02), "b": replace(busy(0.02), installed=installed)}
    return compared(both, most_blocks=1)["b"].way


@pytest.mark.parametrize(("set_up_s", "way"), [(0.001, "side by side"), (0.1, "turns")])
def test_a_core_is_shared_only_if_most_of_a_turn_is_timed(set_up_s, way):
    """A long set-up would interrupt the timed calls beside it."""
    assert in_child(way_of, set_up_s) == way


def draws(way: Way, file: Path, _: Report) -> list[list[str]]:
    """Return the random numbers that each fork draws before its calls."""

    def note(rng: random.Random) -> None:
        with file.open("a") as notes:
            notes.write(" ".join(str(rng.random()) for _ in range(10)) + "\n")

    ways._shifted_memory = note
    compared({"a": busy(0.02), "b": busy(0.02)}, most_blocks=3, way=way)
    return [line.split() for line in file.read_text().splitlines()]


@pytest.mark.parametrize("way", ["turns", "side by side"])
def test_each_fork_draws_random_numbers_of_its_own(way, tmp_path):
    """No number is drawn in two forks, so that their memory layouts are independent."""
    forks = in_child(draws, way, tmp_path / "notes")
    numbers = [number for fork in forks for number in fork]
    assert len(forks) >= 3
    assert len(set(numbers)) == len(numbers)


def in_threads(seconds: float) -> Prepared[str]:
    """Return a variant that does its work in a pool of threads, which it makes in set-up."""
    workers = ThreadPoolExecutor(1)
    workers.submit(int).result()
    return Prepared(lambda: workers.submit(busy(seconds).run).result(), close=workers.shutdown)


def in_processes(seconds: float) -> Prepared[str]:
    """Return a variant that does its work in a new process for each call."""

    def run() -> str:
        if child := os.fork():
            os.waitpid(child, 0)
            return "decided"
        busy(seconds).run()
        os._exit(0)

    return Prepared(run)


def outsourced(prepare: Callable[[float], Prepared[str]], seconds: float, _: Report) -> Ratio:
    """Return the ratio of work in another thread or process to the same work done here."""
    with_helpers = Variant("outsourced", lambda _: prepare(seconds), "", "")
    both = {"here": busy(seconds), "outsourced": with_helpers.prepared(None)}
    times = compared(both, seconds=0.3, most_blocks=3)["outsourced"]
    both["outsourced"].close()
    ratio = times.ratio_to(times.reference or times)
    assert ratio is not None
    return ratio


@pytest.mark.parametrize("seconds", [0.0005, 0.03])
@pytest.mark.parametrize("prepare", [in_threads, in_processes])
def test_work_in_another_thread_or_process_is_neither_free_nor_endless(prepare, seconds):
    """It counts in full, also in short calls, and its helpers are not waited for in a fork."""
    ratio = in_child(outsourced, prepare, seconds)
    assert ratio.way == "turns in one process"
    assert ratio.high > 0.9
