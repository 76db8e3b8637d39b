"""A lower bound for plans that move no more than a budget of another plan.

Beside what every plan must keep, memory and time in sum, such a plan leaves most shards where they
are: on each rank, the shards that stay must fit, and cost no more than the slowest rank.
"""

import math

import highspy
import numpy as np
import numpy.typing as npt

from planners.embedding.best_plan.bounds.bound import least_possible
from planners.embedding.best_plan.bounds.programmes import Solver, least_perf
from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.best_plan.near.moves import Moves
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Floats, Ints, Placement

# What a whole of the budget or of memory that is missing costs, in units of the bound: with it the
# programme always has a solution, and what its prices prove holds. A byte of a small table may be
# worth far more than one of the largest, which is the whole of a budget.
_MISSING = {"budget": 1e7, "memory": 1e3}

_SAFETY = 1e-13  # more than rounding changes, as a part of all that is added


def near_bound(
    found: Candidates,
    moves: Moves,
    budget: float,
    at_least: float,
    deadline: Deadline | None = None,
) -> float:
    """Return milliseconds that no plan rates below that moves at most a budget of bytes.

    It is computed from the programme's prices by sums over the tables, less what rounding changes;
    a solver that a deadline stops proves less. No less than `at_least` is returned, a bound that is
    known already.
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
    """One option per table in parts; shards in parts at home, or anywhere else.

    Its columns are the slowest rank, what is missing, the candidates, and the shards at home. Its
    rows are tables, what has a price (time in sum, the budget, memory in sum, and of each rank its
    time and memory), and for each shard at home that its option is chosen.
    """

    def __init__(self, found: Candidates, moves: Moves, budget: float, unit: float) -> None:
        space, devices = found.space, found.devices
        self._found, self._unit, self._ranks = found, unit, devices.ranks
        whole = max(float(moves.weight.max()), 1.0)
        capacity = devices.storage
        kinds = [kind for kind in range(3) if space.option_storage[found.options][:, kind].any()]
        self._kinds = len(kinds)
        self._first_rank = 2 + self._kinds  # the first price of a rank's own; then 1 + kinds each
        self._limits = np.zeros(self._first_rank + self._ranks * (1 + self._kinds))
        together = np.maximum(capacity.sum(0), 1)
        self._limits[1] = budget / whole
        self._limits[2 : self._first_rank] = (capacity.sum(0) / together)[kinds]
        each = np.maximum(capacity, 1)
        for place, kind in enumerate(kinds):
            of_kind = slice(self._first_rank + 1 + place, None, 1 + self._kinds)
            self._limits[of_kind] = capacity[:, kind] / each[:, kind]
        # By candidate and by shard at home, what they need of each price.
        self._needs: list[tuple[Ints, Floats]] = []
        self._stays: list[tuple[Ints, Floats]] = []
        owners: list[int] = []
        weights: list[float] = []
        perf = least_perf(found) / unit
        storage = space.option_storage[found.options][:, kinds] / together[kinds]
        for number, option in enumerate(found.options.tolist()):
            shards = np.arange(space.first_shard[option], space.first_shard[option + 1])
            homes = moves.home[shards]
            uniform = space.placement[option] == Placement.UNIFORM
            at_home = shards[homes >= 0]
            away = homes != np.arange(self._ranks) if uniform else homes < 0
            moved = moves.weight[shards][away].sum() / whole
            rows = [np.arange(self._first_rank)]
            values = [np.concatenate([[perf[number], moved], storage[number]])]
            for shard in at_home.tolist():
                estimate, rank = space.estimate[shard], int(moves.home[shard])
                if uniform:
                    rank = shard - int(shards[0])
                own = self._first_rank + rank * (1 + self._kinds) + np.arange(1 + self._kinds)
                need = np.concatenate(
                    [
                        [space.total[estimate] / unit],
                        (space.storage[estimate] / each[rank])[kinds],
                    ]
                )
                if uniform:
                    rows.append(own)
                    values.append(need)
                else:
                    self._stays.append((own, need))
                    weights.append(moves.weight[shard] / whole)
                    owners.append(number)
            self._needs.append((np.concatenate(rows), np.concatenate(values)))
        self._owners = np.array(owners, np.int64)
        self._weights = np.array(weights)
        self._highs = Solver()
        self._build()

    def _build(self) -> None:
        space, highs = self._found.space, self._highs
        for _ in range(space.tables):
            highs.addRow(1.0, 1.0, 0, [], [])
        first = space.tables  # the row of the first price
        for limit in self._limits.tolist():
            highs.addRow(-highspy.kHighsInf, limit, 0, [], [])
        for _ in self._owners:
            highs.addRow(-highspy.kHighsInf, 0.0, 0, [], [])
        stays = first + len(self._limits)
        own = np.arange(self._first_rank, len(self._limits), 1 + self._kinds)
        slowest = np.concatenate([[0], own]).astype(np.int32) + first
        weights = np.concatenate([[-float(self._found.usable.sum())], np.full(self._ranks, -1.0)])
        highs.addCol(1.0, 0.0, highspy.kHighsInf, len(slowest), slowest.astype(np.int32), weights)
        missing = np.setdiff1d(np.arange(1, len(self._limits)), own)
        for row in missing.tolist():
            cost = _MISSING["budget" if row == 1 else "memory"]
            place = np.array([first + row], np.int32)
            highs.addCol(cost, 0.0, highspy.kHighsInf, 1, place, [-1.0])
        self._column = 1 + len(missing)  # of the first candidate
        of_owner: dict[int, list[int]] = {}
        for stay, owner in enumerate(self._owners.tolist()):
            of_owner.setdefault(owner, []).append(stays + stay)
        for number, (needed, values) in enumerate(self._needs):
            table = int(space.table[self._found.options[number]])
            linked = of_owner.get(number, [])
            rows = np.concatenate([[table], needed + first, linked]).astype(np.int32)
            entries = np.concatenate([[1.0], values, np.full(len(linked), -1.0)])
            entries[2] += self._weights[self._owners == number].sum()  # the budget's, after time's
            highs.addCol(0.0, 0.0, 1.0, len(rows), rows, entries)
        for stay, (needed, values) in enumerate(self._stays):
            rows = np.concatenate([needed + first, [first + 1, stays + stay]]).astype(np.int32)
            entries = np.concatenate([values, [-self._weights[stay], 1.0]])
            highs.addCol(0.0, 0.0, 1.0, len(rows), rows, entries)

    def solve(self, limit: float, deadline: Deadline) -> float:
        """Return the bound where options with shards above `limit` are left out."""
        allowed = self._found.largest <= limit
        if not np.logical_or.reduceat(allowed, self._found.first[:-1]).all():
            return math.inf
        count = len(allowed)
        columns = np.arange(self._column, self._column + count, dtype=np.int32)
        self._highs.changeColsBounds(count, columns, np.zeros(count), allowed.astype(np.float64))
        self._highs.setOptionValue("time_limit", self._highs.getRunTime() + max(deadline.left, 0.0))
        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return 0.0
        duals = np.array(self._highs.getSolution().row_dual)
        first = self._found.space.tables
        prices = np.maximum(-duals[first : first + len(self._limits)], 0.0)
        return self._priced(allowed, prices)

    def _priced(self, allowed: npt.NDArray[np.bool_], prices: Floats) -> float:
        """Return what any prices prove: the cheapest choices, less what there is of everything."""
        own = prices[self._first_rank :: 1 + self._kinds]
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
