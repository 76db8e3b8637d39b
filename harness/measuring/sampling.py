"""Interleaved timed calls: randomised ABBA blocks in one process, garbage collection off."""

import gc
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from harness.contract import Measured, Prepared
from harness.measuring.clock import Clock
from harness.measuring.verdict import CONFIDENCE, estimate_ratio, judge
from harness.model.cell import Ratio
from harness.model.settings import SamplingRule

# A sample lasts at least this long, by repeating a short call, so that the clock resolves it.
_SAMPLE_SECONDS = 0.02
_MOST_CALLS = 10_000
# A verdict that is looked for again and again comes by chance sooner or later. So stopping at a
# difference, which may be a false alarm, asks for more than the interval that is reported
# (Haybittle 1971, Peto 1976), and at each look there is a tenth more to see.
_CONFIDENCE_OF_DIFFERENCE = 0.999
_GROWTH_BETWEEN_LOOKS = 1.1

Limits = Mapping[str, Sequence[float]]
NO_LIMITS: Limits = {}


@dataclass(slots=True)
class Times:
    """Seconds a call took, one entry per sample; `blocks` holds the CPU seconds block by block.

    CPU seconds are of all threads, so that work which is moved to another one is not a speed-up;
    `thread_cpu_s`, of the calling thread alone, is empty for calls that were measured elsewhere.
    """

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    thread_cpu_s: list[float] = field(default_factory=list)
    blocks: dict[int, list[float]] = field(default_factory=dict)

    def add(
        self, block: int, wall_s: float, cpu_s: float, thread_cpu_s: float | None = None
    ) -> None:
        """Record one sample of a block."""
        self.wall_s.append(wall_s)
        self.cpu_s.append(cpu_s)
        if thread_cpu_s is not None:
            self.thread_cpu_s.append(thread_cpu_s)
        self.blocks.setdefault(block, []).append(cpu_s)

    def ratio_to(self, reference: "Times", confidence: float = CONFIDENCE) -> Ratio | None:
        """Estimate the ratio over the blocks that hold both; None where there is none.

        The first turns of a block make a pair, and so do the second ones: since a block runs back
        the way it came, a drift of the machine is in one pair what it is in the other, reversed.
        """
        pairs = [
            pair
            for block in sorted(self.blocks.keys() & reference.blocks.keys())
            for pair in zip(self.blocks[block], reference.blocks[block], strict=False)
        ]
        if not pairs:
            return None
        mine, theirs = zip(*pairs, strict=True)
        return estimate_ratio(mine, theirs, confidence)


class Turn(NamedTuple):
    """Wall and CPU seconds of one call, and what it decided; see `Times` for the threads."""

    wall_s: float
    cpu_s: float
    thread_cpu_s: float | None
    decision: Any


@contextmanager
def _collection_off() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def timed_turn(prepared: Prepared[Any], clock: Clock, calls: int = 1) -> Turn:
    """Call a prepared variant `calls` times; return the mean times of a call."""
    wall = cpu = thread_cpu = 0.0
    # What is made anew must not be timed; otherwise the clock is read once, since a call may be
    # too short for it.
    rounds, calls_of_round = (calls, 1) if prepared.renew else (1, calls)
    with prepared.installed(), _collection_off():
        for _ in range(rounds):
            prepared.begin()
            wall_start, cpu_start, thread_start = clock.wall(), clock.cpu(), clock.thread_cpu()
            for _ in range(calls_of_round):
                result = prepared.run()
                if isinstance(result, Measured):
                    wall += result.wall_s
                    cpu += result.cpu_s
            if not isinstance(result, Measured):
                wall += clock.wall() - wall_start
                cpu += clock.cpu() - cpu_start
                thread_cpu += clock.thread_cpu() - thread_start
    if isinstance(result, Measured):
        return Turn(wall / calls, cpu / calls, None, result.decision)
    return Turn(wall / calls, cpu / calls, thread_cpu / calls, result)


def _call_seconds(prepared: Prepared[Any], clock: Clock) -> float:
    """Return the wall time of one call here, also where the call is measured elsewhere."""
    with prepared.installed(), _collection_off():
        prepared.begin()
        started = clock.wall()
        prepared.run()
        return clock.wall() - started


def _undecided(
    names: Sequence[str],
    reference: str,
    times: Mapping[str, Times],
    rule: SamplingRule,
    limits: Limits,
) -> list[str]:
    def is_open(name: str) -> bool:
        try:
            ratio = times[name].ratio_to(times[reference])
            wider = times[name].ratio_to(times[reference], _CONFIDENCE_OF_DIFFERENCE)
        except ValueError:  # more of the same times will not make a ratio
            return False
        if ratio is None or wider is None:
            return True
        if any(ratio.low < limit < ratio.high for limit in limits.get(name, ())):
            return True
        is_same = judge(ratio, rule.noise_floor) == "same"
        return not is_same and judge(wider, rule.noise_floor) == "inconclusive"

    return [name for name in names if name == reference or is_open(name)]


@contextmanager
def _long_lived_objects_left_alone() -> Iterator[None]:
    """Keep the collections between turns short: imported modules and problems stay anyway."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@_long_lived_objects_left_alone()
def sample(
    prepared: Mapping[str, Prepared[Any]],
    reference: str | None,
    clock: Clock,
    rule: SamplingRule,
    turn_begins: Callable[[str], None] = lambda name: None,
    decided: Callable[[str, Any], None] = lambda name, decision: None,
    turn_ended: Callable[[str, int, Turn], None] = lambda name, block, turn: None,
    limits: Limits = NO_LIMITS,
) -> dict[str, Times]:
    """Time several prepared variants against one another.

    Each block runs the variants in a random order and then in the reverse of it, so that a drift of
    the machine falls on all alike. After `least_blocks`, and then each time that a tenth more have
    been timed, the verdicts are looked for: from there on only the reference runs again, with the
    variants whose verdict is still open or whose ratio may be on either side of a limit. Without a
    reference every variant runs the least blocks.

    Args:
        prepared: variants by name, in the order to warm them up (quickest first).
        reference: name of the one that the others are compared with, if it is among them.
        clock: what to time with.
        rule: when to stop.
        turn_begins: called with the variant's name before each of its turns.
        decided: called with name and decision after each counted turn, to look at it untimed.
        turn_ended: called with name, block and turn after a counted turn.
        limits: by variant the ratios to the reference that a goal is about.
    """
    started = clock.wall()
    calls = dict.fromkeys(prepared, 1)
    for name, variant in prepared.items():
        for _ in range(2):  # the first call imports and fills caches, so the second one counts
            turn_begins(name)
            wall_s = _call_seconds(variant, clock)
            if clock.wall() - started > rule.warmup_seconds:
                break
        if wall_s > 0:
            calls[name] = min(_MOST_CALLS, max(1, math.ceil(_SAMPLE_SECONDS / wall_s)))
        if clock.wall() - started > rule.warmup_seconds:
            break  # calls of seconds carry their own warm-up

    times = {name: Times() for name in prepared}
    rng = random.Random(rule.seed)
    active = list(prepared)
    started = clock.wall()
    next_look = rule.least_blocks
    for block in range(rule.most_blocks):
        block_started = clock.wall()
        rng.shuffle(active)
        for name in active + active[::-1]:
            turn_begins(name)
            turn = timed_turn(prepared[name], clock, calls[name])
            decided(name, turn.decision)
            times[name].add(block, turn.wall_s, turn.cpu_s, turn.thread_cpu_s)
            turn_ended(name, block, turn)
        if block + 1 >= next_look:
            if reference is None:
                break
            next_look = math.ceil((block + 1) * _GROWTH_BETWEEN_LOOKS)
            active = _undecided(active, reference, times, rule, limits)
            if active in ([], [reference]):
                break
        block_seconds = clock.wall() - block_started
        if block > 0 and clock.wall() - started + block_seconds > rule.seconds:
            break  # another block would pass the time
    return times
