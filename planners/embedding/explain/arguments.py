"""Proves the lower bound on a plan's cost by several arguments, from simple to strong."""

import math
from dataclasses import dataclass

import numpy as np

from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.linear import least_perf, least_possible
from planners.embedding.best_plan.presolve import presolved
from planners.embedding.best_plan.proofs import RUNGS, ladder
from planners.embedding.search.space import Devices, Ints, SearchSpace

ARGUMENTS = {
    "table": "the most expensive shard of one table, however the table is cut",
    "work": "all work, evenly over ranks, with the cheapest option of each table",
    "shards": "all work, evenly over ranks, with options whose shards cost no more than the bound",
    "memory": "work and memory, as if all ranks had one memory",
    "costs": "work and memory, without options that are in no good plan",
    "patterns": "sets of whole shards that fit on a device, in time and in memory",
    "ranks": "whole shards on single ranks, each with its own memory",
}
"""What each argument takes into account. All prove lower bounds. Later ones prove no less, up to
rounding."""

# The arguments sum in different orders.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Reasons:
    """The lower bound of each argument, and the tables and options behind the bounds."""

    proven: dict[str, float]  # milliseconds that every plan needs, by argument
    table: int  # the table of the argument `table`
    cheapest: Ints  # the option of each table in the argument `shards`, shape (T,)
    relaxed: Ints  # the likeliest option of each table in `memory`; -1 if unknown; shape (T,)

    @property
    def milliseconds(self) -> float:
        """The lower bound: the largest one that `memory` or a later argument proves."""
        return max(self.proven.get(name, 0.0) for name in RUNGS)

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
    proofs = ladder(found)
    proven = {
        "table": float(largest.max()),
        "work": math.fsum(np.minimum.reduceat(least, starts)) / devices.ranks,
        "shards": shards,
        **{proof.rung: proof.milliseconds for proof in proofs},
    }
    return Reasons(proven, int(largest.argmax()), cheapest, proofs[0].relaxed)
