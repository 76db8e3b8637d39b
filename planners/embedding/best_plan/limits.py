"""The limits of the linear programme, with what candidates and their shards add to them.

A plan that moves at most a budget of bytes from a previous plan leaves most shards on their
previous rank (their home). There they must fit in memory and cost at most z. A rank with room for
all of them limits nothing, so only the others, the crowded ranks, have limits of their own.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, hstack

from planners.embedding.best_plan.candidates import ROUNDING, Candidates
from planners.embedding.plan_files.table import Moves
from planners.embedding.search.space import Floats, Placement


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
