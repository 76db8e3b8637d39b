"""The linear programme: lower bounds from fractions of options, with limits in sum over ranks.

In a plan with rating z, each shard costs at most z, and so does the sum of the shards on each rank.
So z is impossible if the cheapest choice of options with such shards, within the summed memory of
all devices, costs more than z times the number of ranks. The set of options that z allows changes
only at the costs of their largest shards, so only these values are tried (threshold method for
bottleneck problems).

Plans that rate at most z, and plans near a previous one, have more limits; see `limits`.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import highspy
import numpy as np
from scipy.sparse import block_array, coo_array, eye_array

from planners.embedding.best_plan.candidates import (
    ROUNDING,
    SAFETY,
    Bools,
    Candidates,
    all_candidates,
    candidates,
)
from planners.embedding.best_plan.limits import Rows, rows_in_sum, rows_of_moves
from planners.embedding.plan_files.table import Moves
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import (
    Devices,
    Floats,
    Ints,
    SearchSpace,
)
from planners.highs import Solver, is_solved, solving


def linear_bound(options: Candidates, deadline: Deadline | None = None) -> tuple[float, Ints]:
    """Return a bound in milliseconds, and the option of each table in the relaxed plan, shape (T,).

    The bound is infinite, and the options are -1, if it is proven that no plan exists.
    """
    if len(options.without_options):
        return math.inf, np.full(options.space.tables, -1)
    programme, until = LinearProgramme(options), deadline or Deadline()
    return least_possible(options.largest, lambda limit: programme.solve(limit, until))


def near_bound(
    options: Candidates,
    moves: Moves,
    budget: float,
    at_least: float,
    deadline: Deadline | None = None,
) -> float:
    """Return a lower bound on the milliseconds of plans that move at most `budget` bytes.

    `at_least` is a known bound, returned if it is higher, or if no plan is within the budget.
    """
    if not math.isfinite(at_least + budget) or not moves.weight.any():
        return at_least
    programme = LinearProgramme(options, rows_of_moves(options, moves, budget, at_least))
    until = deadline or Deadline()
    least, _ = least_possible(
        options.largest, lambda limit: programme.solve(limit, until), at_least
    )
    return max(at_least, least) if math.isfinite(least) else at_least


def with_previous(space: SearchSpace, devices: Devices, moves: Moves) -> Candidates:
    """Return the candidates and the previous plan's options that fit, even if dominated."""
    fitting, wanted = all_candidates(space, devices), candidates(space, devices).options
    wanted = np.union1d(wanted, moves.options_at_home(space))
    return fitting.only(np.isin(fitting.options, wanted))


def least_possible(
    largest: Floats, solve: Callable[[float], tuple[float, Ints]], at_least: float = 0.0
) -> tuple[float, Ints]:
    """Return the least rating that the relaxation allows, and the choice of options for it.

    `largest` has the milliseconds of the options' largest shards; sorted, they are the steps.
    `solve(z)` returns the cost per rank of the cheapest choice of options with shards of at most z,
    and that choice. Invariant: its cost never rises with z. So the first step with a cost below the
    next step gives the least rating; galloping and bisection find this step.
    """
    steps = np.unique(largest)
    solved: dict[int, tuple[float, Ints]] = {}

    def possible(step: int) -> bool:
        solved[step] = solve(float(steps[step]))
        return step == len(steps) - 1 or solved[step][0] < steps[step + 1]

    low = max(int(np.searchsorted(steps, at_least, side="right")) - 1, 0)
    high, stride = low, 1
    while not possible(high):
        low, high, stride = high + 1, min(high + stride, len(steps) - 1), 2 * stride
    while low < high:
        middle = (low + high) // 2
        if possible(middle):
            high = middle
        else:
            low = middle + 1
    cost, options = solved[high]
    return max(cost, float(steps[high])), options


class LinearProgramme:
    """Minimises the slowest rank over fractions of options, and of their shards at home.

    Each solve starts from the basis of the one before. All bounds are Lagrangian bounds at the
    solver's dual prices of the limits. They hold for any prices and are rounded down, so neither
    the solver's tolerances nor a deadline can make them wrong; they may only be lower.
    """

    def __init__(self, options: Candidates, rows: Rows | None = None) -> None:
        self._candidates, self._first = options, options.first[:-1]
        self._rows = rows = rows or rows_in_sum(options)
        terms = np.diff(rows.needs.indptr) + rows.owner.T @ np.diff(rows.stays.indptr)
        # Of a cost, a sum of so many terms at dual prices, and of the sums that are not exact.
        self._rounding = (16 + terms.max(initial=0)) * ROUNDING
        self._highs = Solver()
        # Rows: one per table; the limits; each shard at home has at most its option's fraction.
        # Columns: the slowest rank; candidates, with all shards moved; shards at home.
        count, at_home = rows.needs.shape[0], rows.owner.shape[0]
        table = options.space.table[options.options]
        indicator = coo_array((np.ones(count), (table, np.arange(count))))
        matrix = block_array(
            [
                [None, indicator, None],
                [
                    -rows.is_time[:, None],
                    (rows.needs + rows.owner.T @ rows.leaves).T,
                    (rows.stays - rows.leaves).T,
                ],
                [None, -rows.owner, eye_array(at_home)],
            ]
        ).tocsc()
        tables, infinity = options.space.tables, highspy.kHighsInf
        upper = np.concatenate([np.ones(tables), rows.limits, np.zeros(at_home)])
        lower = np.where(np.arange(len(upper)) < tables, 1.0, -infinity)
        self._highs.addRows(len(upper), lower, upper, 0, np.zeros(len(upper), np.int32), [], [])
        size = matrix.shape[1]
        is_slowest = np.arange(size) == 0
        self._highs.addCols(
            size,
            is_slowest.astype(np.float64),
            np.zeros(size),
            np.where(is_slowest, infinity, 1.0),
            matrix.nnz,
            matrix.indptr[:-1].astype(np.int32),
            matrix.indices.astype(np.int32),
            matrix.data,
        )

    def solve(self, limit: float, deadline: Deadline) -> tuple[float, Ints]:
        """Return a lower bound in milliseconds, and each table's option with the largest fraction.

        Options with shards above `limit` milliseconds are left out. The bound is infinite if it is
        proven that no solution exists. Without a solution, the options are -1.
        """
        allowed = self._candidates.largest <= limit
        none = np.full(len(self._first), -1)
        if not np.logical_or.reduceat(allowed, self._first).all():
            return math.inf, none
        solution = self._solution(allowed, deadline)
        if solution is None:
            return (math.inf if self._lacks_memory(allowed) else 0.0), none
        _, bound = self._priced(allowed, self._scaled(solution.row_dual))
        parts = np.array(solution.col_value)[1 : 1 + len(allowed)]
        parts = np.where(allowed, parts, -1.0)
        chosen = [
            start + int(np.argmax(parts[start:end]))
            for start, end in pairwise(self._candidates.first)
        ]
        return max(bound, 0.0) * self._rows.unit, self._candidates.options[chosen]

    def affordable(self, limit: float, allowed: Bools, deadline: Deadline) -> Bools | None:
        """Return a mask of allowed options that a plan that rates <= `limit` can use; None if none.

        Reduced-cost fixing: a plan with an option costs at least the Lagrangian bound plus the
        option's reduced cost.
        """
        solution = self._solution(allowed, deadline)
        if solution is None:
            return None if self._lacks_memory(allowed) else allowed
        prices = self._scaled(solution.row_dual)
        costs, bound = self._priced(allowed, prices)
        spare = limit / self._rows.unit * (1 + 1e-12) - bound
        if spare < 0:
            return None
        least = np.minimum.reduceat(costs, self._first)
        least = np.repeat(least, np.diff(self._candidates.first))
        slack = SAFETY * (np.abs(least) + self._rows.limits @ prices)
        return np.asarray(allowed & (costs - least <= spare + slack))

    def _solution(self, allowed: Bools, deadline: Deadline) -> Any | None:
        """Solve with the allowed options; return None if no optimum is known."""
        highs, count = self._highs, len(allowed)
        columns = np.arange(1, 1 + count, dtype=np.int32)
        highs.changeColsBounds(count, columns, np.zeros(count), allowed.astype(np.float64))
        return highs.getSolution() if is_solved(highs, deadline.left) else None

    def _lacks_memory(self, allowed: Bools) -> bool:
        """Whether the solver's dual ray proves that the options exceed the limits other than time.

        By Farkas' lemma they do if, at the ray's prices, the cheapest options cost more than all
        limits. This checks it again, because the solver's answer has tolerances.
        """
        with solving:
            _, known, ray = self._highs.getDualRay()
        if not known:
            return False
        prices = np.where(self._rows.is_time > 0, 0.0, self._prices(ray))
        return self._priced(allowed, prices)[1] > 0.0

    def _prices(self, duals: Any) -> Floats:
        """Return the prices of the limits from the duals of all rows, raised to 0 if negative."""
        tables = self._candidates.space.tables
        prices: Floats = -np.array(duals)[tables : tables + len(self._rows.limits)]
        return np.maximum(prices, 0.0)

    def _scaled(self, duals: Any) -> Floats:
        """Return prices at which the slowest rank's milliseconds cost no more than themselves."""
        prices = self._prices(duals)
        slowest = float(self._rows.is_time @ prices)
        return prices / (slowest * (1 + 4 * self._rounding)) if slowest > 0 else 0.0 * prices

    def _priced(self, allowed: Bools, prices: Floats) -> tuple[Floats, float]:
        """Return the options' costs, infinite if not allowed, and the bound; for prices >= 0.

        The bound is the cost of the cheapest option of each table, minus that of all limits.
        """
        rows = self._rows
        at_home = np.minimum(rows.stays @ prices, rows.leaves @ prices)
        costs = np.where(allowed, rows.needs @ prices + rows.owner.T @ at_home, np.inf)
        least = math.fsum(np.minimum.reduceat(costs, self._first))
        spent = math.fsum(rows.limits * prices)
        return costs, least * (1 - self._rounding) - spent * (1 + self._rounding)
