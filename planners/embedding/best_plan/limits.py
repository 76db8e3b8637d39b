"""The limits of the linear programme, with what candidates and their shards add to them.

A giant, a shard that needs more than half of a rank in one kind (time or memory), leaves little of
that kind to the other shards of its rank. Sums over ranks do not see this. So plans that rate at
most z have more limits: weights of shards of which no rank holds more than 1 (conservative scales,
or dual feasible functions: Fekete and Schepers 2001).

A plan that moves at most a budget of bytes from a previous plan also leaves most shards on their
previous rank (their home). There they must fit in memory and cost at most z. A rank with room for
all of them limits nothing, so only the others, the crowded ranks, have limits of their own.
"""

import math
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, hstack

from planners.embedding.best_plan.candidates import ROUNDING, SAFETY, Candidates
from planners.embedding.plan_files.table import Moves
from planners.embedding.search.space import Floats, Placement

_MOST_GIANTS = 2_000  # candidates up to which limits of giants are worth their time


class Rows(NamedTuple):
    """L limits, with what C candidates and H shards at home add to them, as parts of the limits."""

    unit: float  # milliseconds of the numbers below
    limits: Floats  # shape (L,)
    is_time: Floats  # 1 for times, whose limit is the slowest rank, else 0, shape (L,)
    needs: Any  # a sparse array of shape (C, L)
    owner: Any  # 1 at the candidate of each shard at home, a sparse array of shape (H, C)
    stays: Any  # what a shard adds if it stays at home, a sparse array of shape (H, L)
    leaves: Any  # what it adds if it moves, a sparse array of shape (H, L)


def least_perf(options: Candidates) -> Floats:
    """Return the least milliseconds that each candidate adds to the sum over all ranks, (C,).

    This is `option_perf`, lowered by the largest rounding error: a rating, rounded at each shard,
    can be slightly below the exact sum, and `option_perf` can be slightly above it.
    """
    counts = np.diff(options.space.first_shard)[options.options]
    most_on_a_rank = np.maximum.reduceat(counts, options.first[:-1]).sum()
    rounded = (counts + most_on_a_rank + 8) * ROUNDING
    return np.asarray(options.space.option_perf[options.options] * (1 - rounded))


def rows_in_sum(options: Candidates) -> Rows:
    """Return the limits of time and of each kind of memory, in sum over all ranks."""
    space, capacity = options.space, options.devices.storage.sum(axis=0)
    used = space.option_storage[options.options]
    kinds = np.flatnonzero(used.any(axis=0))
    perf = least_perf(options) / options.usable.sum()
    # As parts of the least mean time and of the capacity, so that all numbers are of one size.
    unit = math.fsum(np.minimum.reduceat(perf, options.first[:-1])) or 1.0
    needs = csr_array(np.column_stack([perf / unit, used[:, kinds] / capacity[kinds]]))
    is_time = np.append(1.0, np.zeros(len(kinds)))
    of_shards = csr_array((0, len(is_time)))
    owner = csr_array((0, len(perf)))
    return Rows(unit, 1.0 - is_time, is_time, needs, owner, of_shards, of_shards)


def rows_of_giants(options: Candidates, at_most: float) -> Rows | None:
    """Return the limits in sum and those of giants, for plans that rate at most `at_most` ms.

    Return None without any giants, or with too many candidates.

    Take a kind that giants make scarce, another kind, and a factor f. The weight of a shard is its
    need of the other kind, but at most f times its need of the scarce one. If a giant leaves r of
    the scarce kind, the shards next to it weigh at most f r, so the giant may weigh 1 - f r.
    """
    space, of_rank = options.space, np.maximum(options.devices.storage.max(axis=0), 1)
    if at_most <= 0 or len(options.options) > _MOST_GIANTS:
        return None
    # 1. What shards need of a rank in each kind, time first.
    kinds = np.flatnonzero(space.option_storage[options.options].any(axis=0))
    needs = np.column_stack([space.total / at_most, space.storage[:, kinds] / of_rank[kinds]])
    of_options = [space.estimates_of(option) for option in options.options.tolist()]
    shards = np.concatenate(of_options)
    first = np.cumsum([0, *map(len, of_options[:-1])])
    used = np.unique(shards)
    # 2. Their weights, and the sum of them in each option.
    weights = []
    for scarce, other in permutations(range(needs.shape[1]), 2):
        is_giant = needs[:, scarce] > 0.5 + SAFETY
        if not is_giant[used].any():
            continue
        least_left = max(1.0 - needs[used, scarce].max(), 1e-3)
        for factor in np.geomspace(0.3, 1.0 / least_left, 24).tolist():
            beside = np.minimum(needs[:, other], factor * needs[:, scarce])
            alone = np.maximum(needs[:, other], 1.0 - factor * (1.0 - needs[:, scarce]))
            weight = np.where(is_giant, alone, beside)
            weights.append(np.add.reduceat(weight[shards], first))
    if not weights:
        return None
    # 3. They weigh at most 1 on each rank, in sum over all ranks; a little more for roundings.
    rows, count = rows_in_sum(options), len(weights)
    of_shards = hstack([rows.stays, csr_array((0, count))], "csr")
    return Rows(
        unit=rows.unit,
        limits=np.append(rows.limits, np.full(count, 1.0 + SAFETY)),
        is_time=np.append(rows.is_time, np.zeros(count)),
        needs=hstack([rows.needs, np.column_stack(weights) / options.usable.sum()], "csr"),
        owner=rows.owner,
        stays=of_shards,
        leaves=of_shards,
    )


def rows_of_moves(options: Candidates, moves: Moves, budget: float, at_least: float) -> Rows:
    """Return the limits in sum, of moved bytes, and of each crowded rank's time and memory."""
    space, storage, in_sum = options.space, options.devices.storage, rows_in_sum(options)
    count, sums = in_sum.needs.shape
    kinds = np.flatnonzero(space.option_storage[options.options].any(axis=0))
    whole = max(float(moves.weight.max()), 1.0)
    # 1. The candidates' shards at home; shard i of a uniform option is always on rank i.
    candidate = np.full(len(space.options), -1)
    candidate[options.options] = np.arange(count)
    known = candidate[moves.options_at_home(space)] >= 0
    shards, option = moves.at_home[known], moves.options_at_home(space)[known]
    uniform = space.placement[option] == Placement.UNIFORM
    rank = np.where(uniform, shards - space.first_shard[option], moves.home[shards])
    where = np.arange(len(shards)), candidate[option]
    owner = csr_array((np.ones(len(shards)), where), shape=(len(shards), count))
    # 2. The time and memory of their ranks that they use if they stay, and the crowded ranks.
    capacity = np.maximum(storage[:, kinds], 1)
    parts = space.storage[space.estimate[shards]][:, kinds] / capacity[rank]
    used = np.column_stack([space.total[space.estimate[shards]] / in_sum.unit, parts])
    room = np.column_stack(
        [np.full(len(storage), at_least / in_sum.unit), storage[:, kinds] / capacity]
    )
    width = room.shape[1]
    column = rank[:, None] * width + np.arange(width)
    ends = np.arange(len(shards) + 1) * width
    stays = csr_array((used.ravel(), column.ravel(), ends), shape=(len(shards), room.size))
    crowded = (stays.sum(axis=0).reshape(room.shape) > room).any(axis=1)
    stays = stays[:, np.repeat(crowded, width)]
    is_time = np.tile(np.arange(width) == 0, crowded.sum())
    of_ranks = np.where(is_time, 0.0, room[crowded].ravel())
    # 3. Shards of uniform options stay on crowded ranks; others stay or leave, and then move.
    free = crowded[rank] & ~uniform
    moved = moves.least_moved(space)[options.options] / whole
    leaving = moves.weight[shards[free]] / whole
    return Rows(
        unit=in_sum.unit,
        limits=np.concatenate([in_sum.limits, [budget / whole], of_ranks]),
        is_time=np.concatenate([in_sum.is_time, [0.0], is_time]),
        needs=hstack(
            [in_sum.needs, csr_array(moved[:, None]), owner[uniform].T @ stays[uniform]], "csr"
        ),
        owner=owner[free],
        stays=hstack([csr_array((len(leaving), sums + 1)), stays[free]], "csr"),
        leaves=csr_array(
            (leaving, (np.arange(len(leaving)), np.full(len(leaving), sums))),
            shape=(len(leaving), sums + 1 + len(is_time)),
        ),
    )
