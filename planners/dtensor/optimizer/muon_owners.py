"""Decide which rank orthogonalises which matrix: the slowest rank's work is to be least.

Every rank decides alike, from shapes alone, so the decision needs no communication.
"""

from collections.abc import Sequence
from typing import NamedTuple

_PRECISION = 0.001
"""The search for the least capacity of a rank ends at this share of the bound."""


class Owners(NamedTuple):
    """The owner of each matrix.

    Attributes:
        ranks: the rank that orthogonalises each matrix.
        largest: the largest sum of costs of a rank.
        bound: what no assignment's largest sum is below.
    """

    ranks: tuple[int, ...]
    largest: int
    bound: int


def newton_schulz_flops(rows: int, columns: int) -> int:
    """Return the flops of one Newton-Schulz iteration: three products with the smaller side."""
    small, large = sorted((rows, columns))
    return 4 * small * small * large + 2 * small**3


def assigned(costs: Sequence[int], ranks: int) -> Owners:
    """Return an owner for each cost, and a bound on the largest sum of any assignment.

    This is MULTIFIT (Coffman, Garey and Johnson, 1978): the largest costs first, each to the first
    rank with room for it, and bisection for the least capacity at which all have room.
    """
    falling = sorted(range(len(costs)), key=lambda at: -costs[at])
    bound = least_largest(costs, ranks)
    # 1. Each to the rank with the least so far: at most 4/3 of the best assignment (Graham, 1969).
    loads, owners = [0] * ranks, [0] * len(costs)
    for at in falling:
        owners[at] = loads.index(min(loads))
        loads[owners[at]] += costs[at]
    # 2. Bisection between the bound and that.
    low, largest = bound - 1, max(loads)
    while largest - low > 1 + _PRECISION * bound:
        capacity = (low + largest) // 2
        fitted = _first_fit(costs, falling, ranks, capacity)
        if fitted is None:
            low = capacity
        else:
            owners, largest = fitted
    return Owners(tuple(owners), largest, bound)


def least_largest(costs: Sequence[int], ranks: int) -> int:
    """Return a lower bound on the largest sum: the mean, or what some rank must have together.

    Of the k x ranks + 1 largest costs, some rank has k + 1, and these are at least the smallest.
    """
    falling = sorted(costs, reverse=True)
    together = (
        sum(falling[at - at // ranks : at + 1]) for at in range(0, len(falling), max(ranks, 1))
    )
    return max(-(-sum(costs) // ranks), *together, 0)


def _first_fit(
    costs: Sequence[int], falling: Sequence[int], ranks: int, capacity: int
) -> tuple[list[int], int] | None:
    """Return owners with sums of at most `capacity`, and the largest sum; None if a cost is left.

    `falling` are the places of the costs, those of large costs first.
    """
    loads, owners = [0] * ranks, [0] * len(costs)
    for at in falling:
        for rank, load in enumerate(loads):
            if load + costs[at] <= capacity:
                owners[at] = rank
                loads[rank] += costs[at]
                break
        else:
            return None
    return owners, max(loads)
