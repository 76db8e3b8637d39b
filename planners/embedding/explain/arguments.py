"""The arguments that the lower bound rests on, each taking in more than the one before."""

import math
from dataclasses import dataclass, replace

import numpy as np

from planners.embedding.best_plan.bounds.bound import (
    integer_bound,
    least_possible,
    linear_bound,
)
from planners.embedding.best_plan.bounds.configuration import pattern_bound
from planners.embedding.best_plan.bounds.presolve import presolve_bound, presolved
from planners.embedding.best_plan.bounds.programmes import least_perf
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.search import searched_bound
from planners.embedding.best_plan.strategy import worth_integers, worth_patterns
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Devices, Ints, SearchSpace

ARGUMENTS = {
    "table": "each table by itself: its dearest shard, where it is cut so that this is least",
    "work": "all work, evenly over ranks: the cheapest option of each table",
    "shards": "the same with options alone whose shards cost no more than what is proven",
    "memory": "the same, and all tables together must fit into the memory of all ranks together",
    "costs": "the same, without options that cost too much or find no room in any plan",
    "hosts": "the same, with options whole and the memory of each host apart",
    "ranks": "the same, with whole shards on single ranks: an exact search",
    "patterns": "each device holds shards that it has room for, whole, in time and in memory",
}
"""The view of each argument. All are proven lower bounds. What takes in more proves no less, but
for rounding and the tolerances of the integer programme (`hosts`)."""

# The arguments are summed up in different orders.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Reasons:
    """The arguments behind the lower bound.

    `relaxed` has the likeliest option where the argument takes several in parts, -1 where the
    solver gave up.
    """

    proven: dict[str, float]  # milliseconds that no plan rates less than, by argument
    table: int  # the one that the argument `table` is about
    cheapest: Ints  # the option of each table in the argument `shards`, shape (T,)
    relaxed: Ints  # that in `memory`, or in `hosts` where that proves more, shape (T,)

    @property
    def milliseconds(self) -> float:
        """The bound: what the arguments prove that take in most."""
        names = ("memory", "costs", "hosts", "ranks", "patterns")
        return max(self.proven.get(name, 0.0) for name in names)

    @property
    def binding(self) -> str:
        """The first argument that proves all of the bound: what the later ones look at is idle."""
        enough = self.milliseconds * (1 - _ROUNDING)
        return next(name for name, least in self.proven.items() if least >= enough)


def reasons(space: SearchSpace, devices: Devices) -> Reasons:
    """Return what the lower bound rests on; raises ValueError where a table has no room."""
    found = presolved(candidates(space, devices))
    if len(found.without_options):
        raise ValueError("a table has no room")
    options, starts = found.options, found.first[:-1]
    largest = np.minimum.reduceat(found.largest, starts)
    least = least_perf(found)

    def cheapest_within(limit: float) -> tuple[float, Ints]:
        """Return the least milliseconds per rank with shards of at most `limit`."""
        perf = np.where(found.largest <= limit, least, np.inf)
        # Table after table, the cheapest first; of equals the one that takes the least HBM.
        order = np.lexsort((space.option_storage[options, 0], perf, space.table[options]))
        first = order[starts]
        return math.fsum(perf[first]) / devices.ranks, options[first]

    shards, cheapest = least_possible(found.largest, cheapest_within)
    bound = linear_bound(found)
    proven = {
        "table": float(largest.max()),
        "work": math.fsum(np.minimum.reduceat(least, starts)) / devices.ranks,
        "shards": shards,
        "memory": bound.milliseconds,
    }
    costs, _ = presolve_bound(found, bound.milliseconds, math.inf, Deadline())
    proven["costs"] = costs
    bound = replace(bound, milliseconds=costs)
    if worth_integers(found):
        hosts = integer_bound(found, bound.milliseconds)
        proven["hosts"] = hosts.milliseconds
        bound = max(bound, hosts, key=lambda each: each.milliseconds)
    if searched := searched_bound(space, devices):
        proven["ranks"] = searched
    if worth_patterns(found) and math.isfinite(bound.milliseconds):
        proven["patterns"] = pattern_bound(found, bound.milliseconds)
    return Reasons(proven, int(largest.argmax()), cheapest, bound.options)
