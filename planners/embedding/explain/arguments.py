"""Proves the lower bound on a plan's cost by several arguments, from simple to strong."""

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
from planners.embedding.best_plan.bounds.sizes import worth_integers, worth_patterns
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.search import searched_bound
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Devices, Ints, SearchSpace

ARGUMENTS = {
    "table": "the most expensive shard of one table, however the table is cut",
    "work": "all work, evenly over ranks, with the cheapest option of each table",
    "shards": "all work, evenly over ranks, with options whose shards cost no more than the bound",
    "memory": "work and memory, as if all ranks had one memory",
    "costs": "work and memory, without options that are in no good plan",
    "hosts": "work and memory, with whole options and the memory of each host apart",
    "ranks": "whole shards on single ranks, each with its own memory (an exact search)",
    "patterns": "sets of whole shards that fit on a device, in time and in memory",
}
"""What each argument takes into account. All prove lower bounds. Later ones prove no less, up to
rounding and the tolerance of the integer programme (`hosts`)."""

# The arguments sum in different orders.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Reasons:
    """The lower bound of each argument, and the tables and options behind the bounds."""

    proven: dict[str, float]  # milliseconds that every plan needs, by argument
    table: int  # the table of the argument `table`
    cheapest: Ints  # the option of each table in the argument `shards`, shape (T,)
    # The likeliest option in `memory`, or in `hosts` if that proves more; -1 if unknown; shape (T,)
    relaxed: Ints

    @property
    def milliseconds(self) -> float:
        """The lower bound: the largest one that `memory` or a later argument proves."""
        names = ("memory", "costs", "hosts", "ranks", "patterns")
        return max(self.proven.get(name, 0.0) for name in names)

    @property
    def binding(self) -> str:
        """The name of the first argument that proves the whole bound."""
        enough = self.milliseconds * (1 - _ROUNDING)
        return next(name for name, least in self.proven.items() if least >= enough)


def reasons(space: SearchSpace, devices: Devices) -> Reasons:
    """Prove the lower bound by each argument; raises ValueError if a table fits on no device."""
    found = presolved(candidates(space, devices))
    if len(found.without_options):
        raise ValueError("a table has no room")
    options, starts = found.options, found.first[:-1]
    largest = np.minimum.reduceat(found.largest, starts)
    least = least_perf(found)

    def cheapest_within(limit: float) -> tuple[float, Ints]:
        """Return the least mean ms of a rank with shards of at most `limit` ms, and the options."""
        perf = np.where(found.largest <= limit, least, np.inf)
        # Sort by table, then by cost; ties by HBM.
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
    proven["costs"], _ = presolve_bound(found, bound.milliseconds, math.inf, Deadline())
    bound = replace(bound, milliseconds=proven["costs"])
    if worth_integers(found):
        hosts = integer_bound(found, bound.milliseconds)
        proven["hosts"] = hosts.milliseconds
        bound = max(bound, hosts, key=lambda proof: proof.milliseconds)
    if searched := searched_bound(space, devices):
        proven["ranks"] = searched
    if worth_patterns(found) and math.isfinite(bound.milliseconds):
        proven["patterns"] = pattern_bound(found, bound.milliseconds)
    return Reasons(proven, int(largest.argmax()), cheapest, bound.options)
