"""Lower bounds on the slowest rank's milliseconds, proven for all plans of the same options.

A plan that rates z uses options whose largest shard costs at most z, and its shards together cost
at most z on each rank. So z is impossible where the cheapest choice of such options, within the
memory of all devices together, costs more than z times the ranks. Only z itself and the options'
largest shards change what is allowed, which leaves a few values to try.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from planners.embedding.best_plan.bounds.configuration import pattern_bound, worth_patterns
from planners.embedding.best_plan.bounds.presolve import presolve_bound, presolved
from planners.embedding.best_plan.bounds.programmes import HostProgramme, LinearRelaxation
from planners.embedding.best_plan.candidates import Candidates, candidates
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Devices, Floats, Ints, SearchSpace

_MOST_INTEGERS = 2000
_MOST_BESIDE_PATTERNS = 800  # which prove more in less time on most small problems


@dataclass(frozen=True, slots=True)
class LowerBound:
    """A proven lower bound, and the option of each table in the relaxed plan that it comes from."""

    milliseconds: float  # infinite where no device can hold some table
    options: Ints  # shape (T,); -1 where there is none


def lower_bound(space: SearchSpace, devices: Devices) -> LowerBound:
    """Return the best bound that is worth its time: linear, and others where these are small."""
    found = presolved(candidates(space, devices))
    bound = linear_bound(found)
    if math.isfinite(bound.milliseconds):
        least, _ = presolve_bound(found, bound.milliseconds, math.inf, Deadline())
        bound = replace(bound, milliseconds=least)
    if worth_integers(found) and math.isfinite(bound.milliseconds):
        whole = integer_bound(found, bound.milliseconds)
        bound = max(bound, whole, key=lambda each: each.milliseconds)
    if worth_patterns(found) and math.isfinite(bound.milliseconds):
        bound = replace(bound, milliseconds=pattern_bound(found, bound.milliseconds)[0])
    return bound


def linear_bound(found: Candidates, deadline: Deadline | None = None) -> LowerBound:
    """Return the bound of the linear relaxation: options in parts, memory and perf in sum.

    It is computed from the dual prices of memory by exact sums over the tables, so neither the
    solver's tolerances nor rounding enter it. A solver that a deadline stops proves less.
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

    Only the ranks within a host share memory and time. Less than `at_least`, a bound that is known
    already, is not tried. A solver that a deadline stops proves less.
    """

    def solve(limit: float) -> tuple[float, Ints]:
        allowed = found.options[found.largest <= limit]
        if len(np.unique(found.space.table[allowed])) < found.space.tables:
            return math.inf, np.full(found.space.tables, -1)
        # HiGHS's tolerances are absolute: in a unit of about what is to be proven they are small.
        unit = max(limit, at_least) or 1.0
        return HostProgramme(found, allowed, unit).solve(deadline or Deadline())

    return LowerBound(*least_possible(found.largest, solve, at_least))


def worth_integers(found: Candidates) -> bool:
    """Whether the integer programme is small enough to be solved in a few seconds."""
    most = _MOST_BESIDE_PATTERNS if worth_patterns(found) else _MOST_INTEGERS
    return len(found.options) * (found.devices.hosts + 1) <= most


def least_possible(
    largest: Floats, solve: Callable[[float], tuple[float, Ints]], at_least: float = 0.0
) -> tuple[float, Ints]:
    """Return the least rating that is possible, and the choice of options that reaches it.

    `largest` has the milliseconds of the options' largest shards. `solve(z)` says what the cheapest
    choice of options with shards of at most z costs per rank, which falls with z. So less than the
    first of the sorted steps at which a rating below the next is possible is impossible.
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
