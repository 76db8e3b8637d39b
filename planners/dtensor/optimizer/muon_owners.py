"""Decide which rank orthogonalises which matrix: the slowest rank's work is to be least.

Every rank decides alike, from shapes alone, so the decision needs no communication.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from math import gcd
from typing import NamedTuple

_UNITS = 1 << 14
"""The steps in which a rank's capacity is filled, if the costs have no large common divisor."""

_MARGINS = (0.0, 0.001, 0.003, 0.01, 0.02, 0.04)
"""How far above the bound a rank's capacity is tried, as a share of the bound."""


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

    1. Largest first, each to the rank with the least so far.
    2. While that is above the bound: fill rank by rank to a capacity near the bound, each with the
       largest cost that is left and the others that leave the least room.
    """
    bound = least_largest(costs, ranks)
    best = _largest_first(costs, ranks)
    for margin in _MARGINS:
        if _largest(costs, best) <= bound * (1 + margin):
            break
        filled = _filled(costs, ranks, int(bound * (1 + margin)))
        if filled is not None:
            best = filled
            break
    return Owners(tuple(best), _largest(costs, best), bound)


def least_largest(costs: Sequence[int], ranks: int) -> int:
    """Return a lower bound on the largest sum: the mean, or what some rank must have together.

    Of the k x ranks + 1 largest costs, some rank has k + 1, and these are at least the smallest.
    """
    falling = sorted(costs, reverse=True)
    together = (
        sum(falling[at - at // ranks : at + 1]) for at in range(0, len(falling), max(ranks, 1))
    )
    return max(-(-sum(costs) // ranks), *together, 0)


def _largest(costs: Sequence[int], owners: Sequence[int]) -> int:
    sums = Counter[int]()
    for cost, rank in zip(costs, owners, strict=True):
        sums[rank] += cost
    return max(sums.values(), default=0)


def _largest_first(costs: Sequence[int], ranks: int) -> list[int]:
    owners, loads = [0] * len(costs), [(0, rank) for rank in range(ranks)]
    for at in sorted(range(len(costs)), key=lambda at: -costs[at]):
        load, owners[at] = heappop(loads)
        heappush(loads, (load + costs[at], owners[at]))
    return owners


def _filled(costs: Sequence[int], ranks: int, capacity: int) -> list[int] | None:
    """Return owners with sums of at most `capacity`; None if some costs are left over."""
    unit = max(gcd(*costs), -(-capacity // _UNITS))
    left = Counter(costs)
    matrices: dict[int, list[int]] = {}
    for at, cost in enumerate(costs):
        matrices.setdefault(cost, []).append(at)
    owners = [0] * len(costs)
    for rank in range(ranks):
        if not left:
            break
        first = max(left)
        taken = _best_fill(left - Counter([first]), (capacity - first) // unit, unit)
        taken[first] += 1
        for cost, count in taken.items():
            for _ in range(count):
                owners[matrices[cost].pop()] = rank
        left = left - taken
    return None if left else owners


def _best_fill(left: Mapping[int, int], room: int, unit: int) -> Counter[int]:
    """Return how many of each cost come nearest to `room` units; a cost is rounded up to units.

    A bit at place s says that the sum s can be made. Runs of 1, 2, 4, ... of a cost make all
    counts of it.
    """
    runs: list[tuple[int, int, int]] = []  # cost, count, units
    for cost in sorted(left, reverse=True):
        count, rest = 1, left[cost]
        while rest:
            run = min(count, rest)
            runs.append((cost, run, run * -(-cost // unit)))
            count, rest = 2 * count, rest - run
    within = (1 << (room + 1)) - 1
    made = [1]
    for _, _, units in runs:
        made.append((made[-1] | made[-1] << units) & within)
    taken, total = Counter[int](), made[-1].bit_length() - 1
    for (cost, run, units), before in zip(reversed(runs), reversed(made[:-1]), strict=True):
        if not before >> total & 1:  # this sum needs the run
            taken[cost] += run
            total -= units
    return taken
