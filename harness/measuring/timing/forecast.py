"""Forecast the duration of timing: from the lengths of calls, or the intervals of ratios so far."""

import math
from collections.abc import Collection

from harness.measuring.counting import PROFILED, affordable_counts
from harness.measuring.timing.ways import BLOCK_SECONDS
from harness.model.cell import Ratio
from harness.model.settings import SamplingRule

TYPICAL_BLOCKS = 5
"""Blocks until a verdict if the noise is unknown: most cells of `record/` have 4 to 8."""

_LEAST_BLOCKS = 4
_BLOCKS_IN_TIME = 10  # blocks are short enough that at least this many fit into the time
_GROWTH, _MOST_GROWTH = 1.1, 1000.0


def block_seconds(rule: SamplingRule) -> float:
    """Return the seconds that a block of short calls takes."""
    return min(BLOCK_SECONDS, rule.seconds / _BLOCKS_IN_TIME)


def expected_seconds(calls: Collection[float], rule: SamplingRule) -> float:
    """Return the expected seconds of timing variants together, by the seconds of one call of each.

    That includes warming up and counting their work, but not setting them up.
    """
    once = sum(calls)
    block = block_seconds(rule) + sum(max(call, rule.turn_seconds) for call in calls)
    blocks = max(_LEAST_BLOCKS, min(TYPICAL_BLOCKS, rule.seconds / block))
    warm_up = once if once > rule.warmup_seconds else 2 * once
    counting = sum(PROFILED * call * affordable_counts(call, rule) for call in calls)
    return warm_up + blocks * block + counting


def blocks_needed(blocks: int, ratio: Ratio, distance: float, confidence: float) -> int:
    """Return the expected number of blocks until an interval reaches no farther than `distance`.

    `ratio` has the interval with this confidence after `blocks` blocks, and `distance` is a
    difference of logarithms. Half the interval's width is Student's t times the standard error,
    which shrinks with the square root of the number of pairs, or of processes.
    """
    from scipy.special import stdtrit  # imported here because the import is slow

    first = ratio.processes if ratio.processes > 1 else ratio.pairs
    if first < 2 or not 0 < ratio.low <= ratio.high < math.inf:
        return blocks + 1

    def width(number: float) -> float:
        return float(stdtrit(number - 1, (1 + confidence) / 2)) / math.sqrt(number)

    spread = math.log(ratio.high / ratio.low) / 2 / width(first)
    growth = 1.0
    while spread * width(first * growth) > distance and growth < _MOST_GROWTH:
        growth *= _GROWTH
    return max(blocks + 1, math.ceil(blocks * growth))
