"""A lower bound on the ratings of plans that move at most a budget of bytes from a previous plan.

It is a linear relaxation: it limits the memory and time of all ranks in sum. A plan within the
budget also leaves most shards on their previous rank (their home). On each rank, these shards must
fit in its memory and cost no more than the slowest rank.
"""

import math

import highspy
import numpy as np
import numpy.typing as npt

from planners.embedding.best_plan.bounds.bound import least_possible
from planners.embedding.best_plan.bounds.programmes import Solver, least_perf, run_solver
from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.best_plan.near.moves import Moves
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Floats, Ints, Placement

# The cost of exceeding the budget or the memory by 100 %, in units of the bound, so that the
# programme always has a solution and its prices prove a bound. The budget's is high, because a byte
# of a small table may be worth far more than one of the largest, which may use the whole budget.
_MISSING = {"budget": 1e7, "memory": 1e3}

_SAFETY = 1e-13  # more than the rounding error, relative to the sum of all numbers added


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
    programme = _Programme(found, moves, budget, at_least or 1.0)
    none = np.full(found.space.tables, -1)
    deadline = deadline or Deadline()

    def solve(limit: float) -> tuple[float, Ints]:
        return programme.solve(limit, deadline), none

    return max(at_least, least_possible(found.largest, solve, at_least)[0])


class _Programme:
    """The linear programme: fractions of options, and of their shards at home or moved.

    Columns: the slowest rank, excess over budget and memory, candidates, shards at home. Rows: one
    per table; limits that have prices (total time, budget, total memory, then time and memory of
    each rank); for each shard at home, at most the fraction of its option.
    """

    def __init__(self, found: Candidates, moves: Moves, budget: float, unit: float) -> None:
        space, devices = found.space, found.devices
        self._found, self._unit, self._ranks = found, unit, devices.ranks
        whole = max(float(moves.weight.max()), 1.0)
        kinds = [kind for kind in range(3) if space.option_storage[found.options][:, kind].any()]
        self._first_rank, self._stride = 2 + len(kinds), 1 + len(kinds)  # of ranks' own limits
        capacity, together = np.maximum(devices.storage, 1), np.maximum(devices.storage.sum(0), 1)
        of_ranks = np.column_stack([np.zeros(self._ranks), (devices.storage / capacity)[:, kinds]])
        in_sum = (devices.storage.sum(0) / together)[kinds]
        self._limits = np.concatenate([[0.0, budget / whole], in_sum, of_ranks.ravel()])
        # For each candidate and each shard at home: the limits that it uses, and the amounts.
        self._needs: list[tuple[Ints, Floats]] = []
        self._stays: list[tuple[Ints, Floats]] = []
        owners: list[int] = []  # the candidate of each shard at home
        weights: list[float] = []
        perf = least_perf(found) / unit
        storage = space.option_storage[found.options][:, kinds] / together[kinds]

        def on_rank(shard: int, rank: int) -> tuple[Ints, Floats]:
            estimate = space.estimate[shard]
            memory = (space.storage[estimate] / capacity[rank])[kinds]
            limits = self._first_rank + rank * self._stride + np.arange(self._stride)
            return limits, np.concatenate([[space.total[estimate] / unit], memory])

        for number, option in enumerate(found.options.tolist()):
            shards = np.arange(space.first_shard[option], space.first_shard[option + 1])
            homes = moves.home[shards]
            uniform = space.placement[option] == Placement.UNIFORM
            away = homes != np.arange(self._ranks) if uniform else homes < 0
            moved = moves.weight[shards][away].sum() / whole
            limits, needs = [np.arange(self._first_rank)], [np.array([perf[number], moved])]
            needs.append(storage[number])
            for shard, home in zip(shards[homes >= 0].tolist(), homes[homes >= 0], strict=True):
                if uniform:  # shard i is always on rank i, wherever it was before
                    limit, need = on_rank(shard, shard - int(shards[0]))
                    limits.append(limit)
                    needs.append(need)
                else:
                    self._stays.append(on_rank(shard, int(home)))
                    weights.append(moves.weight[shard] / whole)
                    owners.append(number)
            self._needs.append((np.concatenate(limits), np.concatenate(needs)))
        self._owners = np.array(owners, np.int64)
        self._weights = np.array(weights)
        self._highs = Solver()
        self._build()

    def _build(self) -> None:
        space, highs = self._found.space, self._highs
        infinity = highspy.kHighsInf
        first = space.tables  # the row of the first limit
        stays = first + len(self._limits)  # the row of the first shard at home
        for _ in range(space.tables):
            highs.addRow(1.0, 1.0, 0, [], [])
        for limit in [*self._limits.tolist(), *[0.0] * len(self._owners)]:
            highs.addRow(-infinity, limit, 0, [], [])

        def add(cost: float, upper: float, rows: list[Ints], values: list[Floats]) -> None:
            row = np.concatenate(rows).astype(np.int32)
            highs.addCol(cost, 0.0, upper, len(row), row, np.concatenate(values))

        time_of_ranks = np.arange(self._first_rank, len(self._limits), self._stride)
        usable = np.array([-float(self._found.usable.sum())])
        slowest = [np.array([first]), time_of_ranks + first]
        add(1.0, infinity, slowest, [usable, np.full(self._ranks, -1.0)])
        missing = np.setdiff1d(np.arange(1, len(self._limits)), time_of_ranks)
        for row in missing.tolist():
            cost = _MISSING["budget" if row == 1 else "memory"]
            add(cost, infinity, [np.array([first + row])], [np.array([-1.0])])
        self._column = 1 + len(missing)  # the column of the first candidate
        for number, (needed, values) in enumerate(self._needs):
            table = np.array([space.table[self._found.options[number]]])
            own = np.flatnonzero(self._owners == number)
            # Count all shards as moved; the columns of shards at home subtract their bytes again.
            values = values.copy()
            values[1] += self._weights[own].sum()
            add(
                0.0,
                1.0,
                [table, needed + first, own + stays],
                [np.ones(1), values, np.full(len(own), -1.0)],
            )
        for stay, (needed, values) in enumerate(self._stays):
            rows = [needed + first, np.array([first + 1, stays + stay])]
            add(0.0, 1.0, rows, [values, np.array([-self._weights[stay], 1.0])])

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
        costs = np.array([values @ prices[rows] for rows, values in self._needs])
        staying = np.array([values @ prices[rows] for rows, values in self._stays])
        np.add.at(costs, self._owners, np.minimum(staying, self._weights * prices[1]))
        cheapest = np.minimum.reduceat(np.where(allowed, costs, np.inf), self._found.first[:-1])
        spent = self._limits @ prices
        rounding = _SAFETY * (math.fsum(cheapest) + spent)
        least = math.fsum([*cheapest.tolist(), -spent, -rounding])
        return max(least, 0.0) * self._unit
