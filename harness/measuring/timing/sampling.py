"""Timed calls of several variants, until their ratios to the reference are known."""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from harness.contract import Measured, Prepared
from harness.execution.bootstrap import Report
from harness.execution.forks import Fork, Send
from harness.measuring.garbage import collection_off, long_lived_objects_left_alone
from harness.measuring.timing.clock import Clock
from harness.measuring.timing.times import Times
from harness.measuring.timing.verdict import judge
from harness.measuring.timing.ways import (
    BLOCK_SECONDS,
    InForks,
    Sample,
    SideBySide,
    Variants,
    cores,
    in_turns,
)
from harness.measuring.work.count import count_work
from harness.model.cell import CountedWork, Way
from harness.model.settings import SamplingRule

_MOST_CALLS = 10_000
# A verdict that is looked for again and again comes by chance sooner or later. So stopping at a
# difference, which may be a false alarm, asks for more than the interval that is reported
# (Haybittle 1971, Peto 1976), and at each look there is a tenth more to see.
_CONFIDENCE_OF_DIFFERENCE = 0.999
_GROWTH_BETWEEN_LOOKS = 1.1
_LONGEST_TURN_SECONDS = 0.008  # what takes longer is better off side by side
_LONG_SECONDS = 0.1
_BLOCKS = 10  # that there should be time for
_SHARE_OF_INSTALLING = 0.25  # a turn lasts so much of what it takes to install the variant
_LEAST_FORKS = 4
# Counting takes some three times as long as a call, and may take this share of the time.
_PROFILED, _SHARE_FOR_COUNTING = 3.0, 0.1
# More CPU time of other threads than this share of a call is work that one core must not hold.
_IDLE_THREADS, _IDLE_SECONDS = 0.02, 0.001

Limits = Mapping[str, Sequence[float]]
NO_LIMITS: Limits = {}


class Call(NamedTuple):
    """The seconds of a call before the timing, and of what it takes to install its variant.

    `is_alone` where one thread here did all of it. `lasts_s` is how long it takes by itself: wall
    time where others do the work, else CPU time, which other programs do not make longer.
    """

    wall_s: float
    lasts_s: float
    install_s: float
    is_alone: bool


def _call(prepared: Prepared[Any], clock: Clock) -> Call:
    """Make one call, and look at who does the work."""
    install = clock.wall()
    with prepared.installed(), collection_off():
        install = clock.wall() - install
        prepared.begin()
        wall, cpu, thread_cpu = clock.wall(), clock.cpu(), clock.thread_cpu()
        result = prepared.run()
        wall, cpu = clock.wall() - wall, clock.cpu() - cpu
        others = cpu - (clock.thread_cpu() - thread_cpu)
    is_alone = others <= max(_IDLE_SECONDS, _IDLE_THREADS * cpu)
    is_alone &= not isinstance(result, Measured)
    return Call(wall, cpu if is_alone else wall, install, is_alone)


def _warm_up(
    prepared: Mapping[str, Prepared[Any]],
    clock: Clock,
    seconds: float,
    begins: Callable[[str], None],
    is_needed: bool,
) -> Iterator[tuple[str, Call]]:
    """Call each variant twice: the first call imports and fills caches.

    After so many seconds none is called any more: calls of seconds carry their own warm-up. Where
    it is needed, each is called once at least.
    """
    started = clock.wall()
    for name, variant in prepared.items():
        for number in range(2):
            if clock.wall() - started > seconds and (number or not is_needed):
                break
            begins(name)
            yield name, _call(variant, clock)


class Group:
    """Variants that are timed in the same way, with the reference among them."""

    def __init__(
        self,
        way: Way,
        names: Sequence[str],
        time_block: Callable[[Variants, Sequence[str], random.Random], list[Sample]],
        variants: Variants,
        rule: SamplingRule,
        rng: random.Random,
    ) -> None:
        self.active = list(names)
        self.times = {name: Times(way) for name in names}
        self.blocks = 0
        self._is_forked = way != "turns in one process"
        least = max(rule.least_blocks, _LEAST_FORKS if self._is_forked else 0)
        self._next_look = min(least, rule.most_blocks)
        self._time_block, self._variants, self._rule, self._rng = time_block, variants, rule, rng

    def time_block(self) -> list[Sample]:
        """Time a block of what is still open."""
        self._rng.shuffle(self.active)
        samples = self._time_block(self._variants, self.active, self._rng)
        for each in samples:
            self.times[each.name].add(self.blocks, each.cpu_s, each.wall_s, each.thread_cpu_s)
        self.blocks += 1
        return samples

    def may_end(self) -> bool:
        """Whether there are enough blocks to say anything at all."""
        return self.blocks >= min(_LEAST_FORKS if self._is_forked else 2, self._rule.most_blocks)

    def look(self, reference: str | None, limits: Limits) -> None:
        """Leave out what is decided, each time that there is a tenth more to see."""
        if self.blocks >= self._next_look:
            self._next_look = math.ceil(self.blocks * _GROWTH_BETWEEN_LOOKS)
            left = [name for name in self.active if self._is_open(name, reference, limits)]
            self.active = left if reference is not None and left != [reference] else []
        if self.blocks >= self._rule.most_blocks:
            self.active = []

    def _is_open(self, name: str, reference: str | None, limits: Limits) -> bool:
        if reference is None or name == reference:
            return True
        try:
            ratio = self.times[name].ratio_to(self.times[reference])
            wider = self.times[name].ratio_to(self.times[reference], _CONFIDENCE_OF_DIFFERENCE)
        except ValueError:  # more of the same times will not make a ratio
            return False
        if ratio is None or wider is None:
            return True
        if any(ratio.low < limit < ratio.high for limit in limits.get(name, ())):
            return True
        if judge(ratio, self._rule.noise_floor) == "same":
            return False
        if self._is_forked and ratio.high - ratio.low > 2 * self._rule.precision * ratio.value:
            return True
        return judge(wider, self._rule.noise_floor) == "inconclusive"


class Forks(NamedTuple):
    """What forks need: how they report, if to anyone, and whom to tell what they are at.

    `together` is called with how many run side by side, `counting` with the variant whose work is
    counted next.
    """

    report: Report | None = None
    together: Callable[[int], None] = lambda number: None
    counting: Callable[[str], None] = lambda name: None


def time_groups(
    groups: Sequence[Group],
    reference: str | None,
    limits: Limits,
    clock: Clock,
    seconds: float,
    block_ended: Callable[[int, Sequence[Sample]], None],
) -> None:
    """Time blocks of each group in turns, until all is decided or the seconds are spent."""
    started = clock.wall()
    while left := [group for group in groups if group.active]:
        for group in left:
            block_started = clock.wall()
            block_ended(group.blocks, group.time_block())
            group.look(reference, limits)
            block_seconds = clock.wall() - block_started
            may_end = reference is None or group.may_end()
            if may_end and clock.wall() - started + block_seconds > seconds:
                group.active = []  # another block would pass the time


@long_lived_objects_left_alone()
def sample(
    prepared: Mapping[str, Prepared[Any]],
    reference: str | None,
    clock: Clock,
    rule: SamplingRule,
    turn_begins: Callable[[str], None] = lambda name: None,
    decided: Callable[[str, Any], None] = lambda name, decision: None,
    block_ended: Callable[[int, Sequence[Sample]], None] = lambda number, samples: None,
    limits: Limits = NO_LIMITS,
    forks: Forks | None = None,
) -> dict[str, Times]:
    """Time several prepared variants against one another.

    Each block times the variants so that a slow spell of the machine falls on all alike. After
    `least_blocks`, and then each time that a tenth more have been timed, the verdicts are looked
    for: from there on only the reference runs again, with the variants whose verdict is still open
    or whose ratio may be on either side of a limit. Without a reference every variant runs the
    least blocks, or as many as there is time for. The `reference` of what is returned has the times
    to compare with.

    Args:
        prepared: variants by name, in the order to warm them up (quickest first).
        reference: name of the one that the others are compared with, if it is among them.
        clock: what to time with.
        rule: when to stop.
        turn_begins: called with the variant's name before each of its turns.
        decided: called with name and decision after turns, to look at it untimed.
        block_ended: called with number and samples after each block.
        limits: by variant the ratios to the reference that a goal is about.
        forks: what forks need; without it all is timed in this process.
    """
    calls = dict.fromkeys(prepared, 1)
    seconds = dict.fromkeys(prepared, 1.0)
    warm = dict(_warm_up(prepared, clock, rule.warmup_seconds, turn_begins, forks is not None))
    for name, call in warm.items():
        if call.lasts_s > 0:
            lasts = max(
                rule.turn_seconds, min(_LONGEST_TURN_SECONDS, call.install_s * _SHARE_OF_INSTALLING)
            )
            calls[name] = min(_MOST_CALLS, max(1, math.ceil(lasts / call.lasts_s)))
            seconds[name] = calls[name] * call.lasts_s + call.install_s
    variants = Variants(prepared, calls, seconds, clock, turn_begins, decided)
    rng = random.Random(rule.seed)
    groups = []
    block_seconds = min(BLOCK_SECONDS, rule.seconds / _BLOCKS)
    for way, names in _ways(warm, calls, reference, rule, forks is not None):
        time_block: Any = in_turns
        if forks and way == "turns":
            time_block = InForks(forks.report, block_seconds)
        elif forks and way != "turns in one process":
            time_block = SideBySide(
                forks.report,
                forks.together,
                cores(),
                each_its_own=way == "one core each",
                seconds=block_seconds,
                compares=reference is not None,
            )
        groups.append(Group(way, names, time_block, variants, rule, rng))
    time_groups(groups, reference, limits, clock, rule.seconds, block_ended)
    times: dict[str, Times] = {}
    for group in groups:
        for name, each in group.times.items():
            each.reference = group.times.get(reference or "")
            if not each.wall_s:
                each.wall_s = [warm[name].wall_s]
            times.setdefault(name, each)
    if forks and rule.counts_work:
        for name, call in warm.items():
            counts = int(_SHARE_FOR_COUNTING * rule.seconds / (_PROFILED * max(call.lasts_s, 1e-9)))
            if call.is_alone and counts:
                forks.counting(name)
                work = partial(_work_of, prepared[name], counts > 1)
                with Fork(work, forks.report) as fork:
                    times[name].work = fork.result()
    return times


def _work_of(prepared: Prepared[Any], is_counted_twice: bool, _: Send) -> CountedWork:
    return count_work(prepared, is_counted_twice)


def _ways(
    warm: Mapping[str, Call],
    calls: Mapping[str, int],
    reference: str | None,
    rule: SamplingRule,
    can_fork: bool,
) -> list[tuple[Way, list[str]]]:
    """Return groups of variants with the way to time each; the reference is in all of them.

    Only what one thread of this process does can be forked: other threads are not, and what is
    measured elsewhere is one process for all its callers. Calls that are repeated in a turn are
    better in turns, unless what they are compared with takes far longer.
    """
    alone = [name for name in calls if name in warm and warm[name].is_alone]
    others = [name for name in calls if name not in alone]
    if not can_fork or rule.way == "turns in one process" or reference in others or not alone:
        return [("turns in one process", list(calls))]
    if alone == [reference] and others:
        return [("turns in one process", list(calls))]
    longest = max(calls[name] * warm[name].lasts_s for name in alone)
    repeated = [name for name in alone if calls[name] > 1]
    groups: dict[Way, list[str]] = {}
    if rule.way != "best":
        groups[rule.way] = alone
    elif longest <= _LONGEST_TURN_SECONDS or not cores():
        groups["turns"] = alone
    elif longest >= _LONG_SECONDS or not repeated:
        groups["side by side"] = alone
    elif reference is None or reference in repeated:
        groups["turns"] = alone
    else:
        groups["side by side"] = [name for name in alone if name not in repeated]
        groups["turns"] = [reference, *repeated]
    if others:
        groups["turns in one process"] = [*([reference] if reference else []), *others]
    return [
        (way, names) for way, names in groups.items() if names != [reference] or len(groups) == 1
    ]
