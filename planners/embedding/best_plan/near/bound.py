"""A lower bound on the ratings of plans that move at most a budget of bytes from a previous plan.

It is a linear relaxation: it limits the memory and time of all ranks in sum. A plan within the
budget also leaves most shards on their previous rank (their home). On each rank, these shards must
fit in its memory and cost no more than the slowest rank. A rank that has room for all of them
limits nothing, so the programme has only the crowded ranks: few, if the previous plan fitted.
"""

import math

import highspy
import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array

from planners.embedding.best_plan.candidates import Candidates, candidates, on_usable_ranks
from planners.embedding.best_plan.linear import Solver, least_perf, least_possible, run_solver
from planners.embedding.plan_files.table import Moves
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import (
    Devices,
    Floats,
    Ints,
    Placement,
    SearchSpace,
    search_space,
)

# The cost of exceeding the budget or the memory by 100 %, in units of the bound, so that the
# programme always has a solution and its prices prove a bound. The budget's is high, because a byte
# of a small table may be worth far more than one of the largest, which may use the whole budget.
_MISSING = {"budget": 1e7, "memory": 1e3}

_SAFETY = 1e-13  # more than the rounding error, relative to the sum of all numbers added


def with_previous(space: SearchSpace, devices: Devices, moves: Moves) -> Candidates:
    """Return the candidates and the previous plan's options that fit, even if dominated."""
    undominated = candidates(space, devices)
    options = np.unique(moves.options_at_home(space))
    if not len(options):
        return undominated
    alone = search_space([space.options[number] for number in options.tolist()])
    fitting = options[candidates(alone, devices).options]
    union = np.union1d(undominated.options, fitting)
    union = union[np.argsort(space.table[union], kind="stable")]
    counts = np.bincount(space.table[union], minlength=space.tables)
    return on_usable_ranks(space, devices, union, np.concatenate([[0], np.cumsum(counts)]))


def near_bound(
    found: Candidates,
    moves: Moves,
    budget: float,
    at_least: float,
    deadline: Deadline | None = None,
) -> float:
    """Return a lower bound on the milliseconds of plans that move at most `budget` bytes.

    It is the Lagrangian bound at the linear programme's dual prices, rounded down, and lower if the
    deadline stops the solver. `at_least` is a known bound, returned if it is higher.
    """
    if not math.isfinite(at_least + budget) or not moves.weight.any():
        return at_least
    programme = _Programme(found, moves, budget, at_least)
    none = np.full(found.space.tables, -1)
    deadline = deadline or Deadline()

    def solve(limit: float) -> tuple[float, Ints]:
        return programme.solve(limit, deadline), none

    return max(at_least, least_possible(found.largest, solve, at_least)[0])


class _Programme:
    """The linear programme: fractions of options, and of their shards at home or moved.

    Columns: the slowest rank, excess over budget and memory, candidates, shards at home on crowded
    ranks. Rows: one per table; limits that have prices (total time, budget, total memory, then time
    and memory of each crowded rank); for each such shard, at most the fraction of its option.
    """

    def __init__(self, found: Candidates, moves: Moves, budget: float, at_least: float) -> None:
        space, devices = found.space, found.devices
        self._found, self._unit = found, at_least or 1.0
        whole = max(float(moves.weight.max()), 1.0)
        kinds = [kind for kind in range(3) if space.option_storage[found.options][:, kind].any()]
        self._first_rank, self._stride = 2 + len(kinds), 1 + len(kinds)  # of ranks' own limits
        capacity, together = np.maximum(devices.storage, 1), np.maximum(devices.storage.sum(0), 1)
        of_ranks = np.column_stack(
            [np.zeros(devices.ranks), (devices.storage / capacity)[:, kinds]]
        )

        number = np.full(len(space.options), -1)
        number[found.options] = np.arange(len(found.options))
        shards, option = moves.at_home, moves.options_at_home(space)
        known = number[option] >= 0
        shards, option = shards[known], option[known]
        uniform = space.placement[option] == Placement.UNIFORM
        # Shard i of a uniform option is always on rank i, wherever it was before.
        rank = np.where(uniform, shards - space.first_shard[option], moves.home[shards])
        moved = moves.least_moved(space)
        away = moves.home[shards] != rank
        np.add.at(moved, option[away], moves.weight[shards[away]])
        estimate = space.estimate[shards]
        memory = (space.storage[estimate] / capacity[rank])[:, kinds]
        used = np.column_stack([space.total[estimate] / self._unit, memory])

        load, room = np.zeros(of_ranks.shape), of_ranks.copy()
        np.add.at(load, rank, used)
        room[:, 0] = at_least / self._unit
        crowded = np.asarray((load > room).any(axis=1))
        of_ranks, there = of_ranks[crowded], crowded[rank]
        limit = self._first_rank + (np.cumsum(crowded) - 1)[rank] * self._stride
        own = limit[:, None] + np.arange(self._stride)
        in_sum = (devices.storage.sum(0) / together)[kinds]
        self._limits = np.concatenate([[0.0, budget / whole], in_sum, of_ranks.ravel()])
        stay, fixed = there & ~uniform, there & uniform
        self._owners = number[option[stay]]  # the candidate of each shard at home
        self._weights = moves.weight[shards[stay]] / whole
        self._stays = own[stay], used[stay]  # the limits that each uses, and the amounts
        storage = space.option_storage[found.options][:, kinds] / together[kinds]
        needs = [least_perf(found) / self._unit, moved[found.options] / whole, *storage.T]
        count = len(found.options)
        # The candidates' uses of limits: candidate, limit and amount.
        self._needs = (
            np.append(
                np.tile(np.arange(count), len(needs)),
                np.repeat(number[option[fixed]], self._stride),
            ),
            np.append(np.repeat(np.arange(len(needs)), count), own[fixed]),
            np.append(np.concatenate(needs), used[fixed]),
        )
        self._highs = Solver()
        self._build()

    def _build(self) -> None:
        space, infinity = self._found.space, highspy.kHighsInf
        first = space.tables  # the row of the first limit
        stays = first + len(self._limits)  # the row of the first shard at home
        count, at_home = len(self._found.options), len(self._owners)
        upper = np.concatenate([np.ones(first), self._limits, np.zeros(at_home)])
        lower = np.where(np.arange(len(upper)) < first, 1.0, -infinity)
        self._highs.addRows(len(upper), lower, upper, 0, np.zeros(len(upper), np.int32), [], [])

        time_of_ranks = np.arange(self._first_rank, len(self._limits), self._stride)
        missing = np.setdiff1d(np.arange(1, len(self._limits)), time_of_ranks)
        self._column = 1 + len(missing)  # the column of the first candidate
        columns = self._column + np.arange(count)
        shards = self._column + count + np.arange(at_home)
        usable = float(self._found.usable.sum())
        (candidate, limit, need), (own, used) = self._needs, self._stays
        owner = self._column + self._owners
        # Count all shards as moved; the columns of shards at home subtract their bytes again.
        entries = [
            (0, first, -usable),
            (0, first + time_of_ranks, -1.0),
            (1 + np.arange(len(missing)), first + missing, -1.0),
            (columns, space.table[self._found.options], 1.0),
            (self._column + candidate, first + limit, need),
            (owner, first + 1, self._weights),
            (owner, stays + np.arange(at_home), -1.0),
            (np.repeat(shards, self._stride), first + own.ravel(), used.ravel()),
            (shards, first + 1, -self._weights),
            (shards, stays + np.arange(at_home), 1.0),
        ]
        flat = [np.broadcast_arrays(*entry) for entry in entries]
        column, row, value = (
            np.concatenate([*map(np.ravel, part)]) for part in zip(*flat, strict=True)
        )
        size = self._column + count + at_home
        matrix = coo_array((value, (row, column)), shape=(len(upper), size)).tocsc()
        matrix.eliminate_zeros()
        cost = np.zeros(size)
        cost[0] = 1.0
        cost[1 : self._column] = np.where(missing == 1, _MISSING["budget"], _MISSING["memory"])
        most = np.where(np.arange(size) < self._column, infinity, 1.0)
        index = matrix.indptr[:-1].astype(np.int32), matrix.indices.astype(np.int32)
        self._highs.addCols(size, cost, np.zeros(size), most, matrix.nnz, *index, matrix.data)

    def solve(self, limit: float, deadline: Deadline) -> float:
        """Return the bound in milliseconds, allowing only options without shards above `limit`."""
        allowed = self._found.largest <= limit
        if not np.logical_or.reduceat(allowed, self._found.first[:-1]).all():
            return math.inf
        count = len(allowed)
        columns = np.arange(self._column, self._column + count, dtype=np.int32)
        self._highs.changeColsBounds(count, columns, np.zeros(count), allowed.astype(np.float64))
        run_solver(self._highs, deadline)
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return 0.0
        duals = np.array(self._highs.getSolution().row_dual)
        first = self._found.space.tables
        prices = np.maximum(-duals[first : first + len(self._limits)], 0.0)
        return self._priced(allowed, prices)

    def _priced(self, allowed: npt.NDArray[np.bool_], prices: Floats) -> float:
        """Return the Lagrangian bound in milliseconds, which holds for any prices >= 0.

        It is the cost of the cheapest choices minus the prices of all limits. The prices are scaled
        so that the slowest rank's column has no negative reduced cost.
        """
        own = prices[self._first_rank :: self._stride]
        slowest = self._found.usable.sum() * prices[0] + own.sum()
        if slowest <= 0:
            return 0.0
        prices = prices / (slowest * (1 + 4 * _SAFETY))
        candidate, limit, need = self._needs
        costs = np.bincount(candidate, need * prices[limit], len(allowed))
        own, used = self._stays
        staying = (used * prices[own]).sum(axis=1)
        np.add.at(costs, self._owners, np.minimum(staying, self._weights * prices[1]))
        cheapest = np.minimum.reduceat(np.where(allowed, costs, np.inf), self._found.first[:-1])
        spent = self._limits @ prices
        rounding = _SAFETY * (math.fsum(cheapest) + spent)
        least = math.fsum([*cheapest.tolist(), -spent, -rounding])
        return max(least, 0.0) * self._unit
