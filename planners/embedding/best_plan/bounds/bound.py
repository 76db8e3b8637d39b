"""Lower bounds on the slowest rank's milliseconds, from relaxations of the problem.

In a plan with rating z, each shard costs at most z, and so does the sum of the shards on each rank.
So z is impossible if the cheapest choice of options with such shards, within the summed memory of
all devices, costs more than z times the number of ranks. The set of options that z allows changes
only at the costs of their largest shards, so only these values are tried (threshold method for
bottleneck problems).
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
    """A proven lower bound on all ratings, and the options of the relaxed plan that attains it."""

    milliseconds: float  # infinite if it is proven that no plan exists
    options: Ints  # the option of each table, -1 if unknown, shape (T,)


def linear_bound(found: Candidates, deadline: Deadline | None = None) -> LowerBound:
    """Return the bound of the linear relaxation: fractions of options, limits only in sum.

    It is the Lagrangian bound at the solver's dual prices of memory. This bound is valid for any
    prices and is summed exactly over the tables, so tolerances and rounding cannot make it wrong.
    It is lower if the deadline stops the solver.
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
    """Return the bound of the relaxation with whole options, and memory and time summed by host.

    `at_least` is a known bound; no lower ratings are tried. The result is lower if the deadline
    stops the solver.
    """

    def solve(limit: float) -> tuple[float, Ints]:
        allowed = found.only(found.largest <= limit)
        if len(allowed.without_options):
            return math.inf, np.full(found.space.tables, -1)
        # HiGHS's tolerances are absolute, so scale values by about the bound to make them small.
        unit = max(limit, at_least) or 1.0
        return HostProgramme(allowed, unit).solve(deadline or Deadline())

    return LowerBound(*least_possible(found.largest, solve, at_least))


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
