"""Better bounds of small graphs: branch and bound, with each bound proven in whole numbers.

A branch allows a part of the states of one node. The reductions then often decide many nodes more,
and show that a branch is impossible without a solver. What a solver calls infeasible is no proof:
such a branch keeps the bound of its parent and is split again.
"""

from heapq import heappop, heappush
from itertools import count
from time import monotonic

import numpy as np

from harness.contract import InfeasibleDecision
from planners.placement.problem import Bools
from planners.placement.search.dual import Floats
from planners.placement.search.graph import BARRED, Graph
from planners.placement.search.linear import Programme
from planners.placement.search.reduction import reduced

_CLOSE = 1e-6  # branches this near to the plan's cost are not split


def branched(graph: Graph, cost: int, deadline: float) -> int:
    """Return a proven bound on the cost of all choices, at most `cost`, that of a known plan."""
    order = count()
    root = Programme(graph, cost).relax(deadline)
    waiting = [(root.bound, next(order), graph, root)]
    least = cost  # the least bound of the branches that are not split
    while waiting and waiting[0][0] < least and monotonic() < deadline:
        bound, _, branch, relaxed = heappop(waiting)
        for allowed in _split(branch, relaxed.fractions):
            # A state whose bound is the plan's cost is in no cheaper plan (reduced-cost fixing).
            allowed &= relaxed.of_states < cost
            part = branch._replace(cost=np.where(allowed, branch.cost, BARRED))
            try:
                smaller = reduced(part).graph
            except InfeasibleDecision:
                continue
            own_relaxed = Programme(smaller, cost).relax(deadline)
            own = max(bound, own_relaxed.bound)
            if own >= cost * (1 - _CLOSE) or len(smaller.cost) == smaller.nodes:
                least = min(least, own)
            else:
                heappush(waiting, (own, next(order), smaller, own_relaxed))
    return min([least, *(branch[0] for branch in waiting)])


def _split(graph: Graph, fractions: Floats | None) -> tuple[Bools, Bools]:
    """Return two parts of the states: of the node whose largest fraction is least, half each."""
    if fractions is None:  # no relaxation: the node with most states
        node = int(np.argmax(graph.widths))
        fractions = np.ones(len(graph.cost)) / len(graph.cost)
    else:
        node = int(np.argmin(np.maximum.reduceat(fractions, graph.first[:-1])))
    begin, end = graph.first[node], graph.first[node + 1]
    states = begin + np.argsort(-fractions[begin:end], kind="stable")
    summed = np.cumsum(fractions[states])
    taken = min(1 + int((summed < summed[-1] / 2).sum()), len(states) - 1)
    first, second = (np.ones(len(graph.cost), dtype=bool) for _ in range(2))
    first[states[taken:]] = second[states[:taken]] = False
    return first, second
