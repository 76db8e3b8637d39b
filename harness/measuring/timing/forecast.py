"""Forecast the duration of timing: from the lengths of calls, or the intervals of ratios so far."""

import math
from collections.abc import Collection

from harness.measuring.counting import PROFILED, affordable_counts
from harness.measuring.timing.ways import BLOCK_SECONDS
from harness.model.cell import Ratio
from harness.model.settings import SamplingRule

FORK_SECONDS = 0.07
"""A fork of a process that has imported torch, with its end, on an otherwise idle core."""

_LEAST_BLOCKS = 4
_BLOCKS_IN_TIME = 10  # blocks are short enough that at least this many fit into the time
# The spread of a ratio's logarithm among processes, as in `record/`, and its weight as a number of
# degrees of freedom.
_USUAL_SPREAD, _USUAL_FREEDOM = 0.015, 3
_GROWTH, _MOST_UNITS = 1.1, 100_000


def block_seconds(rule: SamplingRule) -> float:
    """Return the seconds that a block of short calls takes."""
    return min(BLOCK_SECONDS, rule.seconds / _BLOCKS_IN_TIME)


def expected_seconds(calls: Collection[float], rule: SamplingRule) -> float:
    """Return the expected seconds of timing variants together, by the seconds of one call of each.

    That includes warming up and counting their work, but not setting them up.
    """
    once = sum(calls)
    turns = sum(max(call, rule.turn_seconds) for call in calls)
    block = block_seconds(rule) + FORK_SECONDS + turns
    # Until all verdicts, if the noise is unknown: 5 blocks for two variants, 7 for nine.
    typical = _LEAST_BLOCKS + math.sqrt(max(0, len(calls) - 1))
    blocks = max(_LEAST_BLOCKS, min(typical, rule.seconds / block))
    warm_up = once if once > rule.warmup_seconds else 2 * once
    return warm_up + blocks * block + counting_seconds(calls, rule)


def counting_seconds(calls: Collection[float], rule: SamplingRule) -> float:
    """Return the expected seconds of counting the work of calls with these seconds."""
    counts = ((call, affordable_counts(call, rule)) for call in calls)
    return sum(FORK_SECONDS + PROFILED * call * count for call, count in counts if count)


def blocks_needed(blocks: int, units: int, ratio: Ratio, distance: float, confidence: float) -> int:
    """Return the expected number of blocks until an interval reaches no farther than `distance`.

    `ratio` has the interval with this confidence after `blocks` blocks, which hold `units` pairs or
    processes; `distance` is a difference of logarithms. Half the interval's width is Student's t
    times the standard error, which shrinks with the square root of `units`. The spread of so few
    units is uncertain, so it is pooled with the usual one.
    """
    from scipy.special import stdtrit  # imported here because the import is slow

    def width(number: float) -> float:
        return float(stdtrit(number - 1, (1 + confidence) / 2)) / math.sqrt(number)

    spread = _USUAL_SPREAD
    if units > 1 and 0 < ratio.low <= ratio.high < math.inf:
        found = math.log(ratio.high / ratio.low) / 2 / width(units)
        freedom = (units - 1) / (units - 1 + _USUAL_FREEDOM)
        spread = math.hypot(math.sqrt(freedom) * found, math.sqrt(1 - freedom) * spread)
    # The ratio still moves by about its standard error, and a lucky look ends the timing.
    allowed = distance + spread / math.sqrt(units) / 2
    needed = max(2, units)
    while spread * width(needed) > allowed and needed < _MOST_UNITS:
        needed = math.ceil(_GROWTH * needed)
    return max(blocks + 1, math.ceil(blocks * needed / units))
