"""Presolve: rules out options that no plan with at most a given rating can contain.

Options are dropped by their shards' costs, and by their reduced costs in the linear programme, also
with the limits of giants.
"""

import math
from collections.abc import Callable

import numpy as np

from planners.embedding.best_plan.candidates import Bools, Candidates
from planners.embedding.best_plan.limits import rows_of_giants
from planners.embedding.best_plan.linear import LinearProgramme
from planners.embedding.search.outcome import Deadline

_PRECISION = 2e-3  # relative precision of a bound, less than the gap that ends a search


def presolve_bound(
    candidates: Candidates, at_least: float, at_most: float, deadline: Deadline
) -> tuple[float, Candidates]:
    """Return a lower bound on ratings, and the options of plans that rate at most `at_most`.

    `at_most` is the rating of a known plan, or infinity.
    """
    programme = LinearProgramme(candidates)

    def possible(limit: float) -> Bools | None:
        """Return a mask of options that plans rating <= `limit` may have, None if none rates so."""
        allowed = candidates.largest <= limit
        while not len(candidates.only(allowed).without_options):
            if deadline.passed:
                return np.asarray(allowed)
            kept = programme.affordable(limit, allowed, deadline)
            if kept is not None and (kept == allowed).all():
                kept = _beside_giants(candidates, limit, allowed, deadline)
            if kept is None or (kept == allowed).all():
                return kept
            allowed = kept
        return None

    allowed = possible(min(at_most, candidates.any_rating))
    if allowed is None:
        return at_most, candidates
    least = climb(lambda limit: possible(limit) is None, at_least, at_most, deadline)
    return least, candidates.only(allowed)


def _beside_giants(
    candidates: Candidates, limit: float, allowed: Bools, deadline: Deadline
) -> Bools | None:
    """Return a mask of the allowed options that limits of giants leave, or None if no plan."""
    options = candidates.only(allowed)
    rows = rows_of_giants(options, limit)
    if rows is None:
        return allowed
    every = np.ones(len(options.options), bool)
    left = LinearProgramme(options, rows).affordable(limit, every, deadline)
    if left is None:
        return None
    kept = allowed.copy()
    kept[allowed] = left
    return kept


def climb(
    impossible: Callable[[float], bool], low: float, at_most: float, deadline: Deadline
) -> float:
    """Return the highest rating proven impossible, at least `low` and below a plan's `at_most`.

    Try just below `at_most` first, then steps up from `low` that double, then bisect.
    """
    high, step = at_most / (1 + _PRECISION), 2 * _PRECISION
    limit = high if math.isfinite(high) else low * (1 + step)
    while 0 < low < high / (1 + _PRECISION) and not deadline.passed:
        if impossible(limit):
            low, step = limit, 2 * step
        else:
            high = limit
        limit = min(low * (1 + step), math.sqrt(low * high))
    return low
