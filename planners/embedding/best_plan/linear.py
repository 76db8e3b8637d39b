"""The linear programme: lower bounds from fractions of options, with limits only in sum.

In a plan with rating z, each shard costs at most z, and so does the sum of the shards on each rank.
So z is impossible if the cheapest choice of options with such shards, within the summed memory of
all devices, costs more than z times the number of ranks. The set of options that z allows changes
only at the costs of their largest shards, so only these values are tried (threshold method for
bottleneck problems).
"""

import math
import os
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import highspy
import numpy as np

from planners.embedding.best_plan.candidates import Bools, Candidates
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Floats, Ints

_UNIT = 2.0**-53  # relative error of one rounding, at most

# Relative rounding error of the price of memory, at most: a few roundings per table, because sums
# over tables are exact. It matters if options differ by only a few bytes, because prices are high.
_ROUNDING = 16 * _UNIT


def linear_bound(candidates: Candidates, deadline: Deadline | None = None) -> tuple[float, Ints]:
    """Return a bound in milliseconds, and the option of each table in the relaxed plan, shape (T,).

    It is the Lagrangian bound at the solver's dual prices of memory. This bound is valid for any
    prices and is summed exactly over the tables, so tolerances and rounding cannot make it wrong.
    It is lower if the deadline stops the solver. It is infinite, and the options are -1, if it is
    proven that no plan exists.
    """
    if len(candidates.without_options):
        return math.inf, np.full(candidates.space.tables, -1)
    programme, until = LinearProgramme(candidates), deadline or Deadline()
    return least_possible(candidates.largest, lambda limit: programme.solve(limit, until))


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


def least_perf(candidates: Candidates) -> Floats:
    """Return the least milliseconds that each candidate adds to the sum over all ranks, (C,).

    This is `option_perf`, lowered by the largest rounding error: a rating, rounded at each shard,
    can be slightly below the exact sum, and `option_perf` can be slightly above it.
    """
    counts = np.diff(candidates.space.first_shard)[candidates.options]
    most_on_a_rank = np.maximum.reduceat(counts, candidates.first[:-1]).sum()
    rounded = (counts + most_on_a_rank + 8) * _UNIT
    return np.asarray(candidates.space.option_perf[candidates.options] * (1 - rounded))


class Solver(highspy.Highs):
    """A solver that prints nothing, and that a fork of the process waits for."""

    def enableCallbacks(self) -> None:  # noqa: N802 - highspy's name
        """Enable callbacks, as highspy's `__init__` does; since 1.16 that would print a banner."""
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()

    def run(self) -> Any:
        """Solve the programme, and return a status."""
        with solving:
            return super().run()

    def getDualRay(self) -> Any:  # noqa: N802 - highspy's name
        """Return a status, whether there is a dual ray, and the ray; this may solve again."""
        with solving:
            return super().getDualRay()


def run_solver(highs: Solver, deadline: Deadline) -> None:
    """Run the solver until it finishes or the deadline passes."""
    # HiGHS's time limit applies to the sum of all its runs.
    highs.setOptionValue("time_limit", highs.getRunTime() + max(deadline.left, 0.0))
    highs.run()


solving = threading.Lock()


def _stop_workers() -> None:
    """End HiGHS's threads before a fork: a child would wait forever for threads it does not have.

    HiGHS forbids this during a solve, so it waits for one in another thread.
    """
    solving.acquire()
    highspy.Highs.resetGlobalScheduler(True)


os.register_at_fork(
    before=_stop_workers, after_in_parent=solving.release, after_in_child=solving.release
)


class LinearProgramme:
    """Fractions of options per table, within the memory of all devices.

    HiGHS starts each solve from the basis of the previous one.
    """

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates
        self._ranks = int(candidates.usable.sum())
        self._least_perf = least_perf(candidates)
        capacity = candidates.devices.storage.sum(axis=0)
        used = candidates.space.option_storage[candidates.options]
        kinds = [kind for kind in range(3) if used[:, kind].sum() > 0]
        # As parts of the capacity, so that all numbers are of one size.
        self._storage = used[:, kinds] / np.maximum(capacity[kinds], 1)
        self._kinds = len(kinds)
        self._highs = Solver()
        for _ in kinds:
            self._highs.addRow(-highspy.kHighsInf, 1.0, 0, [], [])
        for _ in range(candidates.space.tables):
            self._highs.addRow(1.0, 1.0, 0, [], [])
        rows = np.arange(self._kinds + 1, dtype=np.int32)
        perf = candidates.space.option_perf[candidates.options].tolist()
        table = candidates.space.table[candidates.options]
        for column, storage in enumerate(self._storage):
            rows[-1] = self._kinds + table[column]
            values = np.append(storage, 1.0)
            self._highs.addCol(perf[column], 0.0, 1.0, len(rows), rows, values)

    def solve(self, limit: float, deadline: Deadline, fill: float = 1.0) -> tuple[float, Ints]:
        """Return a lower bound in milliseconds, and each table's option with the largest fraction.

        Options with shards above `limit` milliseconds are left out, and the options use at most
        `fill` of the memory, although the bound is for all of it. The bound is infinite if it is
        proven that no solution exists. Without a solution, the options are -1.
        """
        allowed = self._candidates.largest <= limit
        for kind in range(self._kinds):
            self._highs.changeRowBounds(kind, -highspy.kHighsInf, fill)
        self._solve(allowed, deadline)
        first = self._candidates.first
        none = np.full(len(first) - 1, -1)
        if not np.logical_or.reduceat(allowed, first[:-1]).all():
            return math.inf, none
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return (math.inf if self._lacks_memory(allowed) else 0.0), none
        solution = self._highs.getSolution()
        prices = self._prices()
        parts = np.where(allowed, np.array(solution.col_value), -1.0)
        chosen = [start + int(np.argmax(parts[start:end])) for start, end in pairwise(first)]
        return self._priced(allowed, prices) / self._ranks, self._candidates.options[chosen]

    def affordable(self, limit: float, allowed: Bools, deadline: Deadline) -> Bools | None:
        """Return a mask of allowed options that a plan that rates <= `limit` can use; None if none.

        Reduced-cost fixing: a plan with an option costs at least the Lagrangian bound plus the
        option's reduced cost.
        """
        self._solve(allowed, deadline)
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None if self._lacks_memory(allowed) else allowed
        prices = self._prices()
        spare = limit * (1 + 1e-12) * self._ranks - self._priced(allowed, prices)
        if spare < 0:
            return None
        priced = np.where(allowed, self._least_perf + self._storage @ prices, np.inf)
        first = self._candidates.first
        least = np.repeat(np.minimum.reduceat(priced, first[:-1]), np.diff(first))
        slack = 1e-9 * (np.abs(least) + prices.sum())
        return np.asarray(allowed & (priced - least <= spare + slack))

    def _solve(self, allowed: Bools, deadline: Deadline) -> None:
        columns = np.arange(len(allowed), dtype=np.int32)
        upper = allowed.astype(np.float64)
        self._highs.changeColsBounds(len(columns), columns, np.zeros(len(upper)), upper)
        run_solver(self._highs, deadline)

    def _prices(self) -> Floats:
        """Return the solver's dual price of each kind of memory, raised to 0 if negative."""
        duals = np.array(self._highs.getSolution().row_dual[: self._kinds])
        return np.asarray(np.maximum(-duals, 0.0))

    def _lacks_memory(self, allowed: Bools) -> bool:
        """Whether the solver's dual ray proves that the options need more memory than exists.

        By Farkas' lemma they do if, at the ray's prices, the cheapest options cost more than all
        memory. This checks it again, with a margin, because the solver's answer has tolerances.
        """
        _, known, ray = self._highs.getDualRay()
        if not known:
            return False
        prices = np.maximum(-np.array(ray[: self._kinds]), 0.0)
        priced = np.where(allowed, self._storage @ prices, np.inf)
        least = np.minimum.reduceat(priced, self._candidates.first[:-1]).sum()
        return bool(least > prices.sum() * (1 + 1e-9))

    def _priced(self, allowed: Bools, prices: Floats) -> float:
        """Return the Lagrangian bound on the sum over all ranks; valid for any prices >= 0."""
        priced = np.where(allowed, self._least_perf + self._storage @ prices, np.inf)
        least = math.fsum(np.minimum.reduceat(priced, self._candidates.first[:-1]))
        return least * (1 - _ROUNDING) - math.fsum(prices) * (1 + _ROUNDING)
