"""Time calls of several variants until their ratios to the reference are known."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from harness.contract import Prepared
from harness.execution.forks import Fork, Send
from harness.execution.usage import helpers
from harness.measuring.counting import affordable_counts, count_work
from harness.measuring.garbage import long_lived_objects_left_alone
from harness.measuring.timing.clock import Clock, SystemClock
from harness.measuring.timing.times import Times
from harness.measuring.timing.turns import Call, Observer, Sample, timed_call
from harness.measuring.timing.verdict import judge
from harness.measuring.timing.ways import (
    BLOCK_SECONDS,
    InForks,
    SideBySide,
    Variants,
    cores,
    in_turns,
)
from harness.model.cell import ClockName, CountedWork, Way
from harness.model.settings import SamplingRule

_MOST_CALLS = 10_000
# Group-sequential testing: repeated looks at the data inflate false positives. So stopping at a
# difference needs a wider interval than the reported one (Haybittle 1971, Peto 1976), and a look
# is only made when there are a tenth more blocks than at the previous look.
_CONFIDENCE_OF_DIFFERENCE = 0.999
_GROWTH_BETWEEN_LOOKS = 1.1
_BLOCKS_IN_TIME = 10  # blocks are short enough that at least this many fit into the time
_LONGEST_TURN_SECONDS = 0.008  # longer calls are better timed side by side
_LONG_SECONDS = 0.1
_SHARE_OF_INSTALLING = 0.25  # a turn lasts at least this share of installing its variant
_LEAST_FORKS = 4

Limits = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """Prepared variants to time and compare, and the rule to stop.

    Attributes:
        prepared: the variants by name, in the order to warm them up (quickest first).
        reference: the name of the variant to compare with; None if it is not in `prepared`.
        rule: the stopping rule, with the seconds and numbers of blocks.
        limits: by variant, ratios to the reference; timing continues until the measured ratio is
            clearly above or below each.
        may_fork: whether calls may be timed in forks; if not, all are timed in this process.
        clock: the clock to time with.
        compared: the time that ratios compare; wall time is compared in this process.
    """

    prepared: Mapping[str, Prepared[Any]]
    reference: str | None
    rule: SamplingRule
    limits: Limits = field(default_factory=dict)
    may_fork: bool = False
    clock: Clock = field(default_factory=SystemClock)
    compared: ClockName = "cpu"


def _warm_up(request: SamplingRequest, observer: Observer) -> dict[str, Call]:
    """Call each variant twice, and return its last call by name.

    The first call imports modules and fills caches. After `warmup_seconds` no call begins, because
    calls of seconds hardly depend on a warm-up. If `may_fork`, each variant is called at least
    once, to find out whether it can be forked.
    """
    clock = request.clock
    started = clock.wall()
    calls: dict[str, Call] = {}
    for name, variant in request.prepared.items():
        helpers_before = helpers()
        for number in range(2):
            is_late = clock.wall() - started > request.rule.warmup_seconds
            if is_late and (number or not request.may_fork):
                break
            observer.turn_begins(name)
            calls[name] = timed_call(variant, clock, helpers_before)
    return calls


TimeBlock = Callable[[Variants, Sequence[str], random.Random], list[Sample]]


class Group:
    """Variants that are timed in the same way; `active` has the variants that need more blocks."""

    def __init__(
        self, request: SamplingRequest, way: Way, names: Sequence[str], time_block: TimeBlock
    ) -> None:
        self.active = list(names)
        self.times = {name: Times(way, clock=request.compared) for name in names}
        self.blocks = 0
        self._request, self._rule, self._time_block = request, request.rule, time_block
        self._is_forked = way != "turns in one process"
        least, most = _LEAST_FORKS if self._is_forked else 2, self._rule.most_blocks
        self._least = 0 if request.reference is None else min(least, most)
        self._next_look = min(max(self._rule.least_blocks, least if self._is_forked else 0), most)

    def time_block(self, variants: Variants, rng: random.Random) -> list[Sample]:
        """Time one block of the active variants; record and return its samples."""
        rng.shuffle(self.active)
        samples = self._time_block(variants, self.active, rng)
        for sample in samples:
            times = self.times[sample.name]
            times.add(self.blocks, sample.cpu_s, sample.wall_s, sample.thread_cpu_s)
        self.blocks += 1
        return samples

    def may_end(self) -> bool:
        """Return whether there are enough blocks to stop, even without a verdict."""
        return self.blocks >= self._least

    def look(self) -> None:
        """Remove variants with settled ratios from `active`, whenever blocks grow by a tenth."""
        reference = self._request.reference
        if self.blocks >= self._next_look:
            self._next_look = math.ceil(self.blocks * _GROWTH_BETWEEN_LOOKS)
            left = [
                name
                for name in self.active
                if reference and name != reference and not self._is_settled(name, reference)
            ]
            # The reference runs until all others are settled.
            self.active = [n for n in self.active if n in left or (left and n == reference)]
        if self.blocks >= self._rule.most_blocks:
            self.active = []

    def _is_settled(self, name: str, reference: str) -> bool:
        """Return whether the interval of a ratio is narrow enough for its verdict and limits."""
        try:
            ratio = self.times[name].ratio_to(self.times[reference])
            wider = self.times[name].ratio_to(self.times[reference], _CONFIDENCE_OF_DIFFERENCE)
        except ValueError:  # a time is invalid, so more blocks will not give a ratio
            return True
        if ratio is None or wider is None:
            return False
        rule = self._rule
        if any(ratio.low < limit < ratio.high for limit in self._request.limits.get(name, ())):
            return False
        if judge(ratio, rule.noise_floor) == "same":
            return True
        if self._is_forked and ratio.high - ratio.low > 2 * rule.precision * ratio.value:
            return False
        return judge(wider, rule.noise_floor) != "inconclusive"


@long_lived_objects_left_alone()
def sample(request: SamplingRequest, observer: Observer | None = None) -> dict[str, Times]:
    """Time prepared variants in blocks, and return their times by name.

    The `observer` is called at each event. A block interleaves the variants, so that a slow spell
    of the machine affects all alike. Verdicts are computed after `least_blocks`, and again whenever
    the number of blocks has grown by a tenth. A variant is then dropped if its verdict is settled
    and its ratio is clearly above or below each of its limits; the reference runs until all others
    are dropped. Without a reference, every variant runs the least blocks, if there is time. The
    `reference` of each result has the reference's times.
    """
    observer = observer or Observer()
    warm = _warm_up(request, observer)
    variants = _variants(request, warm, observer)
    groups = [
        Group(request, way, names, _time_block(way, request))
        for way, names in _ways(warm, variants.calls, request)
    ]
    counts = {
        name: affordable_counts(call.lasts_s, request.rule)
        for name, call in warm.items()
        if request.may_fork and call.is_alone
    }
    time_groups(groups, variants, request)
    times: dict[str, Times] = {}
    for group in groups:
        for name, timed in group.times.items():
            timed.reference = group.times.get(request.reference or "")
            timed.warm = warm.get(name)
            if not timed.wall_s:
                timed.wall_s = [warm[name].wall_s]
            times.setdefault(name, timed)
    for name in [name for name in counts if counts[name]]:
        observer.counting(name)
        work = partial(_work_of, request.prepared[name], counts[name] > 1)
        with Fork(work, observer.report) as fork:
            times[name].work = fork.result()
    return times


def _variants(request: SamplingRequest, warm: Mapping[str, Call], observer: Observer) -> Variants:
    """Return the variants with the number of calls that makes a turn long enough to be timed."""
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
    seconds = min(BLOCK_SECONDS, request.rule.seconds / _BLOCKS_IN_TIME)
    if way == "turns in one process" or not request.may_fork:
        return in_turns
    if way == "turns":
        return InForks(seconds)
    compares = request.reference is not None
    return SideBySide(cores(), seconds, compares, one_core_each=way == "one core each")


def time_groups(groups: Sequence[Group], variants: Variants, request: SamplingRequest) -> None:
    """Time one block of each group in turn, until no variant is active or the time is spent."""
    clock, rng = request.clock, random.Random(request.rule.seed)
    started = clock.wall()
    while left := [group for group in groups if group.active]:
        for group in left:
            block_started = clock.wall()
            block = group.blocks
            samples = group.time_block(variants, rng)
            group.look()
            now = clock.wall()
            in_time = request.rule.seconds - (now - started)
            if group.may_end() and now - block_started > in_time:
                group.active = []  # another block would exceed the time
            variants.observer.block_ended(block, samples)


def _work_of(prepared: Prepared[Any], is_counted_twice: bool, _: Send) -> CountedWork:
    return count_work(prepared, is_counted_twice)


def _ways(
    warm: Mapping[str, Call],
    calls: Mapping[str, int],
    request: SamplingRequest,
) -> list[tuple[Way, list[str]]]:
    """Split the variants into groups, each with its way of timing; each includes the reference.

    Only calls in one thread of this process can be timed in forks: a fork has no other threads, and
    all forks would share an upstream's child process. Wall time is not compared in forks, which
    would have to share a core. Short calls, repeated in a turn, are better
    timed in turns, unless they are compared with a far longer call. So are calls with a longer
    set-up: side by side, a core is shared by turns, so the variant that is set up sooner would be
    interrupted more often while it is timed.
    """
    reference, rule = request.reference, request.rule
    alone = [name for name in calls if name in warm and warm[name].is_alone]
    others = [name for name in calls if name not in alone]
    if (
        not request.may_fork
        or request.compared == "wall"
        or rule.way == "turns in one process"
        or reference in others
        or not alone
        or (alone == [reference] and others)
    ):
        return [("turns in one process", list(calls))]
    lasts = {name: calls[name] * warm[name].lasts_s for name in alone}
    is_short = max(lasts.values()) <= _LONGEST_TURN_SECONDS
    is_mostly_set_up = any(warm[name].install_s > lasts[name] for name in alone)
    repeated = [name for name in alone if calls[name] > 1]
    groups: dict[Way, list[str]] = {}
    if rule.way != "best":
        groups[rule.way] = alone
    elif is_short or is_mostly_set_up or not cores():
        groups["turns"] = alone
    elif max(lasts.values()) >= _LONG_SECONDS or not repeated:
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
