"""The search for the highest rating that can be proven impossible."""

import math
from collections.abc import Callable

from planners.embedding.search.outcome import Deadline

_PRECISION = 2e-3  # of the bound
_FIRST_STEP = 5e-3


def climb(
    impossible: Callable[[float], bool], low: float, at_most: float, deadline: Deadline
) -> float:
    """Return the highest rating that is proven impossible, from `low`; never above a known plan."""
    high, step = at_most / (1 + _PRECISION), _FIRST_STEP
    known = math.isfinite(high)  # whether `high` is to be tried itself
    while 0 < low < high / (1 + _PRECISION) and not deadline.passed:
        limit = high if known else min(low * (1 + step), math.sqrt(low * high))
        known = False
        if impossible(limit):
            low, step = limit, 2 * step
        else:
            high = limit
    return low
