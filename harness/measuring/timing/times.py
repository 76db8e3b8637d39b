"""The times of a variant's calls, and the ratio of a variant's time to the reference's."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from msgspec.structs import replace

from harness.measuring.timing.turns import Call
from harness.measuring.timing.verdict import CONFIDENCE, estimate_ratio, trimmed_mean, variance
from harness.model.cell import ClockName, CountedWork, Ratio, Way

_SHARE_A_CORE: tuple[Way, ...] = ("side by side", "one core each")


@dataclass(slots=True)
class Times:
    """The seconds of a call, one entry per sample; `blocks` has those of `clock` by block number.

    CPU seconds are of all threads and child processes; `thread_cpu_s` is empty for calls in another
    process. `way` is the way of timing, and `reference` the times of the variant to compare with.
    Calls side by side share a core, so their wall time means nothing; then `wall_s` has the time of
    a warm-up call, which is in `warm`. `work` is the counted work of a call, or None.
    """

    way: Way = "turns in one process"
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    thread_cpu_s: list[float] = field(default_factory=list)
    blocks: dict[int, list[float]] = field(default_factory=dict)
    reference: "Times | None" = None
    work: CountedWork | None = None
    warm: Call | None = None
    clock: ClockName = "cpu"

    @classmethod
    def of_separate_calls(
        cls, wall_s: list[float], cpu_s: list[float], clock: ClockName = "cpu"
    ) -> "Times":
        """Return the times of calls in processes of their own: their ratio has no interval."""
        compared = statistics.fmean(wall_s if clock == "wall" else cpu_s)
        return cls(clock=clock, wall_s=wall_s, cpu_s=cpu_s, blocks={0: [compared]})

    def add(
        self,
        block: int,
        cpu_s: float,
        wall_s: float | None = None,
        thread_cpu_s: float | None = None,
    ) -> None:
        """Record one sample, in seconds, of a block."""
        self.cpu_s.append(cpu_s)
        if wall_s is not None:
            self.wall_s.append(wall_s)
        if thread_cpu_s is not None:
            self.thread_cpu_s.append(thread_cpu_s)
        compared = wall_s if self.clock == "wall" and wall_s is not None else cpu_s
        self.blocks.setdefault(block, []).append(compared)

    def ratio_to(self, reference: "Times", confidence: float = CONFIDENCE) -> Ratio | None:
        """Estimate the ratio to the reference from the blocks with both; None if there are none.

        Pairs in one process are not independent, because they share its memory layout. So the
        estimate uses one mean ratio for each process, or the pairs if there is only one process.

        Raises:
            ValueError: a time is not positive and finite.
        """
        blocks = self._pair_ratios(reference)
        ratios = self._of_processes(blocks)
        if not ratios:
            return None
        pair_spread, process_spread = _spreads(blocks)
        in_one = self.way == "turns in one process"
        return replace(
            estimate_ratio(ratios, [1.0] * len(ratios), confidence),
            pairs=sum(map(len, blocks)),
            processes=1 if in_one else len(ratios),
            way=self.way,
            pair_spread=_spread(ratios) if in_one else pair_spread,
            process_spread=None if in_one else process_spread,
        )

    def ratios_to(self, reference: "Times") -> list[float]:
        """Return the ratio in each process, or in each pair if there is only one process.

        Raises:
            ValueError: a time is not positive and finite.
        """
        return self._of_processes(self._pair_ratios(reference))

    def _of_processes(self, blocks: Sequence[Sequence[float]]) -> list[float]:
        if self.way == "turns in one process":
            return list(chain.from_iterable(blocks))
        return [math.exp(trimmed_mean(list(map(math.log, block)))) for block in blocks]

    def _pair_ratios(self, reference: "Times") -> list[list[float]]:
        """Return the ratios of pairs, one list for each block with both variants.

        In turns, the first turns of both variants in a block are a pair, then the second turns, and
        so on. The second turns run in reverse order, so a drift of the machine's speed has opposite
        signs in the two pairs. Side by side, a block is one pair of mean times.

        Raises:
            ValueError: a time is not positive and finite.
        """
        blocks = []
        for block in sorted(self.blocks.keys() & reference.blocks.keys()):
            mine, theirs = self.blocks[block], reference.blocks[block]
            if self.way in _SHARE_A_CORE:
                mine, theirs = [statistics.fmean(mine)], [statistics.fmean(theirs)]
            if min(*mine, *theirs) <= 0:
                raise ValueError("a time is too short for the clock")
            if not all(map(math.isfinite, (*mine, *theirs))):
                raise ValueError("a time is not a number")
            blocks.append([a / b for a, b in zip(mine, theirs, strict=False)])
        return blocks


def _spread(ratios: Sequence[float]) -> float | None:
    """Return the standard deviation of the logarithms of ratios; None for a single ratio."""
    return math.sqrt(variance([*map(math.log, ratios)])) if len(ratios) > 1 else None


def _spreads(blocks: Sequence[Sequence[float]]) -> tuple[float | None, float | None]:
    """Return the standard deviations of log ratios within processes, and between processes.

    `blocks` has the pairs' ratios for each process. This is a one-way analysis of variance (Fisher
    1925): the part due to pairs is subtracted from the variance of the processes' means. If each
    process has a single pair, the first figure includes the second, which is then None.
    """
    means = [math.exp(statistics.fmean(map(math.log, block))) for block in blocks]
    many = [block for block in blocks if len(block) > 1]
    if not many:
        return _spread(means), None
    if len(blocks) < 2:
        return _spread(blocks[0]), None
    degrees = sum(len(block) - 1 for block in many)
    pair = sum(variance([*map(math.log, b)]) * (len(b) - 1) for b in many) / degrees
    explained = pair * statistics.fmean(1 / len(block) for block in blocks)
    between = variance([*map(math.log, means)])
    return math.sqrt(pair), math.sqrt(max(0.0, between - explained))
