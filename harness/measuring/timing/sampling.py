"""Timed calls of several variants, until their ratios to the reference are known."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from harness.contract import Measured, Prepared
from harness.contract.calls import collection_off
from harness.execution.forks import Fork, Send
from harness.measuring.counting import count_work
from harness.measuring.garbage import long_lived_objects_left_alone
from harness.measuring.timing.clock import Clock, SystemClock
from harness.measuring.timing.times import Times
from harness.measuring.timing.turns import Observer, Sample
from harness.measuring.timing.verdict import judge
from harness.measuring.timing.ways import (
    BLOCK_SECONDS,
    InForks,
    SideBySide,
    Variants,
    cores,
    in_turns,
)
from harness.model.cell import CountedWork, Way
from harness.model.settings import SamplingRule

_MOST_CALLS = 10_000
# Repeated looks inflate false positives. So stopping at a difference, which may be a false alarm,
# needs a wider interval than the reported one (Haybittle 1971, Peto 1976), and each look has a
# tenth more blocks than the one before.
_CONFIDENCE_OF_DIFFERENCE = 0.999
_GROWTH_BETWEEN_LOOKS = 1.1
_LONGEST_TURN_SECONDS = 0.008  # longer calls are better timed side by side
_LONG_SECONDS = 0.1
_BLOCKS = 10  # the time should suffice for this many
_SHARE_OF_INSTALLING = 0.25  # a turn lasts at least this share of installing its variant
_LEAST_FORKS = 4
# Counting takes some three times as long as a call, and may take this share of the time.
_PROFILED, _SHARE_FOR_COUNTING = 3.0, 0.1
# More CPU time of other threads than this share of a call is work that one core must not hold.
_IDLE_THREADS, _IDLE_SECONDS = 0.02, 0.001

Limits = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """Prepared variants to time against one another, and when to stop.

    Attributes:
        prepared: the variants by name, in the order to warm them up (quickest first).
        reference: name of the variant that the others are compared with, if it is among them.
        rule: when to stop.
        limits: by variant the ratios to the reference that a goal is about.
        may_fork: whether calls may be timed in forks; else all are timed in this process.
        clock: the clock to time with.
    """

    prepared: Mapping[str, Prepared[Any]]
    reference: str | None
    rule: SamplingRule
    limits: Limits = field(default_factory=dict)
    may_fork: bool = False
    clock: Clock = field(default_factory=SystemClock)


class Call(NamedTuple):
    """Seconds of a call before the timing, and of installing its variant.

    `is_alone` where one thread of this process did all the work. `lasts_s` is how long the call
    takes by itself: CPU time, which other programs do not lengthen, or wall time where it is not
    alone.
    """

    wall_s: float
    lasts_s: float
    install_s: float
    is_alone: bool


def _call(prepared: Prepared[Any], clock: Clock) -> Call:
    """Make one call, and find out whether this thread alone does the work."""
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


def _warm_up(request: SamplingRequest, observer: Observer) -> dict[str, Call]:
    """Call each variant twice: the first call imports and fills caches. Return the last calls.

    After `warmup_seconds` no call begins: calls of seconds carry their own warm-up. Where forks may
    be needed, each variant is called at least once.
    """
    clock = request.clock
    started = clock.wall()
    calls: dict[str, Call] = {}
    for name, variant in request.prepared.items():
        for number in range(2):
            is_late = clock.wall() - started > request.rule.warmup_seconds
            if is_late and (number or not request.may_fork):
                break
            observer.turn_begins(name)
            calls[name] = _call(variant, clock)
    return calls


TimeBlock = Callable[[Variants, Sequence[str], random.Random], list[Sample]]


class Group:
    """Variants that are timed in the same way, with the reference among them."""

    def __init__(
        self, request: SamplingRequest, way: Way, names: Sequence[str], time_block: TimeBlock
    ) -> None:
        self.active = list(names)
        self.times = {name: Times(way) for name in names}
        self.blocks = 0
        self._request, self._rule, self._time_block = request, request.rule, time_block
        self._is_forked = way != "turns in one process"
        least = max(self._rule.least_blocks, _LEAST_FORKS if self._is_forked else 0)
        self._next_look = min(least, self._rule.most_blocks)

    def time_block(self, variants: Variants, rng: random.Random) -> list[Sample]:
        """Time a block of the variants that are still open."""
        rng.shuffle(self.active)
        samples = self._time_block(variants, self.active, rng)
        for sample in samples:
            times = self.times[sample.name]
            times.add(self.blocks, sample.cpu_s, sample.wall_s, sample.thread_cpu_s)
        self.blocks += 1
        return samples

    def may_end(self) -> bool:
        """Whether there are sufficient blocks for any conclusion."""
        least = _LEAST_FORKS if self._is_forked else 2
        return self._request.reference is None or self.blocks >= min(least, self._rule.most_blocks)

    def look(self) -> None:
        """Drop the decided variants, each time that there are a tenth more blocks."""
        reference = self._request.reference
        if self.blocks >= self._next_look:
            self._next_look = math.ceil(self.blocks * _GROWTH_BETWEEN_LOOKS)
            left = [name for name in self.active if self._is_open(name, reference)]
            self.active = left if reference is not None and left != [reference] else []
        if self.blocks >= self._rule.most_blocks:
            self.active = []

    def _is_open(self, name: str, reference: str | None) -> bool:
        if reference is None or name == reference:
            return True
        try:
            ratio = self.times[name].ratio_to(self.times[reference])
            wider = self.times[name].ratio_to(self.times[reference], _CONFIDENCE_OF_DIFFERENCE)
        except ValueError:  # more of the same times will not make a ratio
            return False
        if ratio is None or wider is None:
            return True
        if any(ratio.low < limit < ratio.high for limit in self._request.limits.get(name, ())):
            return True
        if judge(ratio, self._rule.noise_floor) == "same":
            return False
        if self._is_forked and ratio.high - ratio.low > 2 * self._rule.precision * ratio.value:
            return True
        return judge(wider, self._rule.noise_floor) == "inconclusive"


@long_lived_objects_left_alone()
def sample(request: SamplingRequest, observer: Observer | None = None) -> dict[str, Times]:
    """Time several prepared variants against one another, while an observer looks on.

    Each block times the variants so that a slow spell of the machine falls on all alike. After
    `least_blocks`, and then each time that there are a tenth more blocks, verdicts are computed:
    from there on only the reference runs again, with the variants whose verdict is still open or
    whose ratio may be on either side of a limit. Without a reference every variant runs the least
    blocks, or as many as there is time for. The `reference` of each result has the times to compare
    with.
    """
    observer = observer or Observer()
    warm = _warm_up(request, observer)
    variants = _variants(request, warm, observer)
    groups = [
        Group(request, way, names, _time_block(way, request))
        for way, names in _ways(warm, variants.calls, request)
    ]
    time_groups(groups, variants, request)
    times: dict[str, Times] = {}
    for group in groups:
        for name, timed in group.times.items():
            timed.reference = group.times.get(request.reference or "")
            if not timed.wall_s:
                timed.wall_s = [warm[name].wall_s]
            times.setdefault(name, timed)
    if request.may_fork and request.rule.counts_work:
        for name, call in warm.items():
            seconds = _SHARE_FOR_COUNTING * request.rule.seconds
            counts = int(seconds / (_PROFILED * max(call.lasts_s, 1e-9)))
            if call.is_alone and counts:
                observer.counting(name)
                work = partial(_work_of, request.prepared[name], counts > 1)
                with Fork(work, observer.report) as fork:
                    times[name].work = fork.result()
    return times


def _variants(request: SamplingRequest, warm: Mapping[str, Call], observer: Observer) -> Variants:
    """Return the variants with the calls of a turn, which lasts as long as the clock needs."""
    calls = dict.fromkeys(request.prepared, 1)
    seconds = dict.fromkeys(request.prepared, 1.0)
    for name, call in warm.items():
        if call.lasts_s > 0:
            installing = min(_LONGEST_TURN_SECONDS, call.install_s * _SHARE_OF_INSTALLING)
            lasts = max(request.rule.turn_seconds, installing)
            calls[name] = min(_MOST_CALLS, max(1, math.ceil(lasts / call.lasts_s)))
            seconds[name] = calls[name] * call.lasts_s + call.install_s
    return Variants(request.prepared, calls, seconds, request.clock, observer)


def _time_block(way: Way, request: SamplingRequest) -> TimeBlock:
    seconds = min(BLOCK_SECONDS, request.rule.seconds / _BLOCKS)
    if way == "turns in one process" or not request.may_fork:
        return in_turns
    if way == "turns":
        return InForks(seconds)
    compares = request.reference is not None
    return SideBySide(cores(), seconds, compares, one_core_each=way == "one core each")


def time_groups(groups: Sequence[Group], variants: Variants, request: SamplingRequest) -> None:
    """Time blocks of each group in turns, until all is decided or the seconds are spent."""
    clock, rng = request.clock, random.Random(request.rule.seed)
    started = clock.wall()
    while left := [group for group in groups if group.active]:
        for group in left:
            block_started = clock.wall()
            block = group.blocks
            variants.observer.block_ended(block, group.time_block(variants, rng))
            group.look()
            block_seconds = clock.wall() - block_started
            if group.may_end() and clock.wall() - started + block_seconds > request.rule.seconds:
                group.active = []  # another block would pass the time


def _work_of(prepared: Prepared[Any], is_counted_twice: bool, _: Send) -> CountedWork:
    return count_work(prepared, is_counted_twice)


def _ways(
    warm: Mapping[str, Call],
    calls: Mapping[str, int],
    request: SamplingRequest,
) -> list[tuple[Way, list[str]]]:
    """Return groups of variants with the way to time each; the reference is in all of them.

    Only the work of one thread of this process can be forked: a fork has no other threads, and an
    upstream in another process is the same one for all. Calls that are repeated in a turn are
    better timed in turns, unless they are compared with a far longer one.
    """
    reference, rule = request.reference, request.rule
    alone = [name for name in calls if name in warm and warm[name].is_alone]
    others = [name for name in calls if name not in alone]
    if (
        not request.may_fork
        or rule.way == "turns in one process"
        or reference in others
        or not alone
    ):
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
