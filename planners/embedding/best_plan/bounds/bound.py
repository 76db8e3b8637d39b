"""Lower bounds on the slowest rank's milliseconds by relaxations of the plan.

In a plan that rates z, each shard costs at most z, and the shards of each rank together cost at
most z. So z is impossible if the cheapest choice of options with such shards, within all devices'
memory, costs more than z times the ranks. The options that z allows change only at the options'
largest shards, which leaves a few values to try (the threshold of bottleneck problems).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planners.embedding.best_plan.bounds.programmes import HostProgramme, LinearRelaxation
from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Floats, Ints


@dataclass(frozen=True, slots=True)
class LowerBound:
    """A proven lower bound, and the option of each table in the relaxed plan that it comes from."""

    milliseconds: float  # infinite if no device can hold some table
    options: Ints  # shape (T,); -1 where there is none


def linear_bound(found: Candidates, deadline: Deadline | None = None) -> LowerBound:
    """Return the bound of the linear relaxation: options in parts, memory and perf in sum.

    It is the Lagrangian bound at the solver's dual prices of memory, which holds for any prices, as
    an exact sum over the tables. So neither tolerances nor rounding enter it. A solver that a
    deadline stops proves less.
    """
    if len(found.without_options):
        return LowerBound(math.inf, np.full(found.space.tables, -1))
    relaxation = LinearRelaxation(found)
    deadline = deadline or Deadline()
    return LowerBound(
        *least_possible(found.largest, lambda limit: relaxation.solve(limit, deadline))
    )


def integer_bound(
    found: Candidates, at_least: float = 0.0, deadline: Deadline | None = None
) -> LowerBound:
    """Return the bound of the relaxation that keeps options whole and each host's memory apart.

    Only the ranks within a host share memory and time. `at_least` is a known bound, below which
    nothing is tried. A solver that a deadline stops proves less.
    """

    def solve(limit: float) -> tuple[float, Ints]:
        allowed = found.only(found.largest <= limit)
        if len(allowed.without_options):
            return math.inf, np.full(found.space.tables, -1)
        # HiGHS's tolerances are absolute: they are small in a unit near the bound.
        unit = max(limit, at_least) or 1.0
        return HostProgramme(allowed, unit).solve(deadline or Deadline())

    return LowerBound(*least_possible(found.largest, solve, at_least))


def least_possible(
    largest: Floats, solve: Callable[[float], tuple[float, Ints]], at_least: float = 0.0
) -> tuple[float, Ints]:
    """Return the least rating that is possible, and the choice of options that reaches it.

    `largest` has the milliseconds of the options' largest shards; sorted, they are the steps.
    `solve(z)` returns the cost per rank of the cheapest choice of options with shards of at
    most z, and that choice. The cost falls as z grows. So the first step at which a rating below
    the next step is possible gives the least rating; galloping and bisection find it.
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
