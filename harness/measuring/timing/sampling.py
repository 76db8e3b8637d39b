"""Time calls of several variants until their ratios to the reference are known."""

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from harness.execution.forks import Fork
from harness.execution.usage import helpers
from harness.measuring.request import CALL, COUNTING
from harness.measuring.timing.turns import Turn, count_work, objects_frozen, timed_turn
from harness.measuring.timing.verdict import (
    CONFIDENCE,
    estimate,
    judge,
    log_ratios,
    spreads,
    trimmed_mean,
)
from harness.measuring.timing.ways import (
    BLOCK_SECONDS,
    SideBySide,
    TimeBlock,
    Timing,
    cores,
    in_forks,
    in_turns,
)
from harness.model.cell import ClockName, CountedWork, Ratio, Way
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
# If other threads and processes use more CPU time than this share of a call, and than these
# seconds, they do part of the work, so the call must not be restricted to one core.
_IDLE_THREADS, _IDLE_SECONDS = 0.02, 0.001
_MOSTLY_WAITING = 3.0  # the wall time of such a call is above this multiple of its CPU time
# Counting may take a tenth of the time; a call that is counted takes about three times as long.
_SHARE_FOR_COUNTING, _COUNTED = 0.1, 3.0


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """The ratios that are wanted: of the times that `compared` names, to `reference`, by `rule`.

    Without a reference, variants are only timed. `limits` has ratios by variant: timing goes on
    until the measured ratio is clearly above or below each. Wall time is compared in one process.
    """

    reference: str | None
    rule: SamplingRule
    limits: Mapping[str, Sequence[float]] = field(default_factory=dict)
    compared: ClockName = "cpu"


@dataclass(slots=True)
class Times:
    """The seconds of a call, one entry per turn; `blocks` has those of `clock` by block number.

    CPU seconds are of all threads and child processes; `thread_cpu_s` is empty for calls in another
    process, and `wall_s` for calls that share a core. `reference` has the times of the variant to
    compare with. `work` is the counted work of a call, or None. `may_fork` is False if a fork would
    lack something that the calls use, and `waits` is True if they wait for most of their wall time.
    """

    way: Way = "turns in one process"
    clock: ClockName = "cpu"
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    thread_cpu_s: list[float] = field(default_factory=list)
    blocks: dict[int, list[float]] = field(default_factory=dict)
    reference: "Times | None" = None
    work: CountedWork | None = None
    may_fork: bool = True
    waits: bool = False

    def add(self, block: int, turn: Turn) -> None:
        """Record a turn of a block."""
        self.cpu_s.append(turn.cpu_s)
        if self.way != "side by side":
            self.wall_s.append(turn.wall_s)
        if turn.thread_cpu_s is not None:
            self.thread_cpu_s.append(turn.thread_cpu_s)
        compared = turn.wall_s if self.clock == "wall" else turn.cpu_s
        self.blocks.setdefault(block, []).append(compared)

    def ratio_to(self, reference: "Times", confidence: float = CONFIDENCE) -> Ratio | None:
        """Estimate the ratio to the reference from the blocks with both; None if there are none.

        Pairs in one process are not independent, because they share its memory layout. So the
        estimate uses one mean ratio for each process, or the pairs if there is only one process.

        Raises:
            ValueError: a time is not positive and finite.
        """
        processes = self._logs(reference)
        if not processes:
            return None
        logs = [trimmed_mean(logs) for logs in processes]
        if self.way == "turns in one process":
            (logs,) = processes
        pair_spread, process_spread = spreads(processes)
        return replace(
            estimate(logs, confidence),
            pairs=sum(map(len, processes)),
            processes=len(processes),
            way=self.way,
            pair_spread=pair_spread,
            process_spread=process_spread,
        )

    def _logs(self, reference: "Times") -> list[list[float]]:
        """Return the logarithms of the ratios of pairs, one list for each process.

        In turns, the first turns of both variants in a block are a pair, then the second turns, and
        so on. The second turns run in reverse order, so a drift of the machine's speed has opposite
        signs in the two pairs. Side by side, a block is one pair of mean times.
        """
        blocks = []
        for block in sorted(self.blocks.keys() & reference.blocks.keys()):
            mine, theirs = self.blocks[block], reference.blocks[block]
            if self.way == "side by side":
                mine, theirs = [statistics.fmean(mine)], [statistics.fmean(theirs)]
            blocks.append(log_ratios(mine, theirs))
        is_one = self.way == "turns in one process"
        return [list(chain(*blocks))] if blocks and is_one else blocks


class Call(NamedTuple):
    """A warm-up call, which says how its variant is best timed.

    `lasts_s` is the CPU seconds, which other programs do not lengthen; wall seconds if not
    `is_alone`. `install_s` is the seconds of entering the variant's context. `is_alone` means that
    one thread of this process did all the work, and can do it in a fork; see `Times` for the rest.
    """

    lasts_s: float
    install_s: float
    is_alone: bool
    may_fork: bool
    waits: bool
    wall_s: float


def _warm_up(timing: Timing, seconds: float) -> dict[str, Call]:
    """Call each variant twice, and return its last call by name.

    The first call imports modules and fills caches. After `seconds` each variant is called
    once: calls of seconds hardly depend on a warm-up, but must show whether they can be forked.
    """
    clock = timing.clock
    started = clock.wall()
    calls: dict[str, Call] = {}
    for name, prepared in timing.prepared.items():
        helpers_before = helpers()
        for number in range(2):
            if number and clock.wall() - started > seconds:
                break
            timing.begins(CALL, name)
            turn = timed_turn(prepared, clock)
            is_here = turn.thread_cpu_s is not None  # else another process measures the call
            # A fork has no threads but its own, and would share its parent's child processes.
            may_fork = not is_here or (prepared.may_fork and helpers() <= helpers_before)
            waits = is_here and turn.waits > 0 and turn.wall_s > _MOSTLY_WAITING * turn.cpu_s
            by_others = turn.cpu_s - (turn.thread_cpu_s or 0.0)
            is_idle = by_others <= max(_IDLE_SECONDS, _IDLE_THREADS * turn.cpu_s)
            is_alone = is_here and is_idle and may_fork and not waits
            lasts_s = turn.cpu_s if is_alone else turn.lasts_s
            calls[name] = Call(lasts_s, turn.install_s, is_alone, may_fork, waits, turn.wall_s)
    return calls


class Group:
    """Variants that are timed in the same way; `active` has the variants that need more blocks."""

    def __init__(
        self, request: SamplingRequest, way: Way, names: Sequence[str], time_block: TimeBlock
    ) -> None:
        self.active = list(names)
        self.times = {name: Times(way, request.compared) for name in names}
        self._request, self._rule, self._time_block = request, request.rule, time_block
        self._blocks = 0
        self._is_forked = way != "turns in one process"
        least, most = _LEAST_FORKS if self._is_forked else 2, self._rule.most_blocks
        self._least = 0 if request.reference is None else min(least, most)
        self._next_look = min(max(self._rule.least_blocks, least if self._is_forked else 0), most)

    def time_block(self, timing: Timing, rng: random.Random, until: float) -> None:
        """Time one block of the active variants; then remove those that need no more.

        No variant does if another block would end after `until`, a time of the clock.
        """
        # 1. Time a block in random order.
        clock, reference = timing.clock, self._request.reference
        started = clock.wall()
        rng.shuffle(self.active)
        for name, turns in self._time_block(timing, self.active, rng).items():
            for turn in turns:
                self.times[name].add(self._blocks, turn)
        self._blocks += 1
        # 2. Look at the ratios; the reference runs until all others are settled.
        if self._blocks >= self._next_look:
            self._next_look = math.ceil(self._blocks * _GROWTH_BETWEEN_LOOKS)
            left = [
                name
                for name in self.active
                if reference and name != reference and not self._is_settled(name, reference)
            ]
            self.active = [n for n in self.active if n in left or (left and n == reference)]
        # 3. Without a verdict, end after the most blocks, or before the time is over.
        is_late = clock.wall() + (clock.wall() - started) > until
        if self._blocks >= self._rule.most_blocks or (is_late and self._blocks >= self._least):
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


def time_groups(groups: Sequence[Group], timing: Timing, rule: SamplingRule) -> None:
    """Time one block of each group in turn, until no variant is active or the time is spent."""
    rng = random.Random(rule.seed)
    until = timing.clock.wall() + rule.seconds
    while active := [group for group in groups if group.active]:
        for group in active:
            group.time_block(timing, rng, until)


@objects_frozen()
def sample(timing: Timing, request: SamplingRequest) -> dict[str, Times]:
    """Time prepared variants in blocks, and return their times by name.

    A block interleaves the variants, so that a slow spell of the machine affects all alike. A
    variant has no more blocks once its verdict is settled. Without a reference, every variant runs
    the least blocks, if there is time. `reference` of each result has the reference's times.
    """
    rule = request.rule
    # 1. Warm up, and choose how many calls make a turn long enough to be timed.
    warm = _warm_up(timing, rule.warmup_seconds)
    for name, call in warm.items():
        installing = min(_LONGEST_TURN_SECONDS, call.install_s * _SHARE_OF_INSTALLING)
        lasts = max(rule.turn_seconds, installing)
        calls = min(_MOST_CALLS, math.ceil(lasts / call.lasts_s)) if call.lasts_s > 0 else 1
        timing.calls[name] = calls
        timing.seconds[name] = calls * call.lasts_s + call.install_s
    # 2. Time blocks of the groups, each in its way, until all is settled or the time is spent.
    block_seconds = min(BLOCK_SECONDS, rule.seconds / _BLOCKS_IN_TIME)
    groups = []
    for way, names in _ways(warm, timing.calls, request):
        time_block: TimeBlock = in_turns
        if way == "turns":
            time_block = partial(in_forks, block_seconds)
        elif way != "turns in one process":
            time_block = SideBySide(cores(), block_seconds, request.reference is not None)
        groups.append(Group(request, way, names, time_block))
    time_groups(groups, timing, rule)
    times: dict[str, Times] = {}
    for group in groups:
        for name, timed in group.times.items():
            timed.reference = group.times.get(request.reference or "")
            timed.may_fork, timed.waits = warm[name].may_fork, warm[name].waits
            timed.wall_s = timed.wall_s or [warm[name].wall_s]
            times.setdefault(name, timed)
    # 3. Count the work of calls in forks, twice if a tenth of the time is enough.
    for name, call in warm.items():
        counted_s = _COUNTED * max(call.lasts_s, 1e-9)
        counts = min(2, int(_SHARE_FOR_COUNTING * rule.seconds / counted_s))
        if counts and call.is_alone and rule.counts_work:
            timing.begins(COUNTING, name)
            work = partial(count_work, timing.prepared[name], counts > 1)
            with Fork(work, timing.report) as fork:
                times[name].work = fork.result()
    return times


def _ways(
    warm: Mapping[str, Call], calls: Mapping[str, int], request: SamplingRequest
) -> list[tuple[Way, list[str]]]:
    """Split the variants into groups, each with its way of timing; each includes the reference.

    Only calls in one thread of this process can be timed in forks: a fork has no other threads, and
    all forks would share an upstream's child process. Wall time is not compared in forks, which
    would have to share a core. Short calls, repeated in a turn, are better timed in turns, unless
    they are compared with a far longer call. So are calls with a longer set-up: side by side, a
    core is shared by turns, so the variant that is set up sooner would be interrupted more often
    while it is timed.
    """
    reference, rule = request.reference, request.rule
    alone = [name for name, call in warm.items() if call.is_alone]
    others = [name for name in warm if name not in alone]
    if (
        request.compared == "wall"
        or rule.way == "turns in one process"
        or reference in others
        or not alone
        or (alone == [reference] and others)
    ):
        return [("turns in one process", list(warm))]
    lasts = {name: calls[name] * warm[name].lasts_s for name in alone}
    longest = max(lasts.values())
    is_mostly_set_up = any(warm[name].install_s > lasts[name] for name in alone)
    repeated = [name for name in alone if calls[name] > 1]
    groups: dict[Way, list[str]] = {}
    if rule.way != "best":
        groups[rule.way] = alone
    elif longest <= _LONGEST_TURN_SECONDS or is_mostly_set_up or not cores():
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
