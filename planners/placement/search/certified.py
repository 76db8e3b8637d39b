"""The best plan in a given time, with a proven bound: reductions, then what the size allows.

| what is left after the reductions | method |
| --- | --- |
| few pairs of states | the integer programme, then branch and bound for the proof |
| more | message passing for bound and prices, then search by forests |
"""

import math
from dataclasses import replace
from time import monotonic

import numpy as np

from harness.contract import InfeasibleDecision
from planners.placement.problem import PlacementProblem, Plan, cost_of
from planners.placement.search.branching import branched, relaxed
from planners.placement.search.descent import descended, smallest
from planners.placement.search.dual import Dual, proven
from planners.placement.search.forest import ForestSearch
from planners.placement.search.graph import BARRED, graph_of
from planners.placement.search.halves import Halves
from planners.placement.search.linear import Programme
from planners.placement.search.reduction import Reduced, reduced

MOST_PAIRS = 200_000
_FOR_PROGRAMME = 0.6
_SWEEPS = 60
# Shares of the time for prices and for search, in turns.
_TURNS = ((0.1, 0.1), (0.1, 0.1), (0.1, 0.5))


def certified(problem: PlacementProblem) -> Plan:
    """Return the best plan within the problem's seconds; raises InfeasibleDecision without one."""
    began = monotonic()
    small = reduced(graph_of(problem))
    left = problem.seconds - (monotonic() - began)
    if len(small.graph.pairs) <= MOST_PAIRS:
        plan = by_programme(small, _FOR_PROGRAMME * left)
        cost = cost_of(problem, plan.choice)
        return replace(plan, bound=branched(small.graph, cost, began + problem.seconds))
    return by_search(small, left)


def by_programme(small: Reduced, seconds: float) -> Plan:
    """Return the integer programme's plan, with the bound of its relaxation."""
    deadline = monotonic() + seconds
    graph, halves = small.graph, Halves(small.graph)
    if not graph.nodes:  # the reductions have decided everything
        return Plan(small.lifted(np.zeros(0, dtype=np.int64)), graph.constant)
    start = descended(graph, smallest(graph))
    cost = graph.cost_of(start)
    first = start if cost < BARRED else None
    programme = Programme(graph, halves, float(cost) if first is not None else 1e9)
    is_relaxed = programme.relax(deadline) is not None
    bound = proven(graph, halves, programme.messages, programme.prices) if is_relaxed else 0
    choice = programme.solve(deadline, first)
    if choice is None:
        raise InfeasibleDecision("No plan within the limit on memory was found in time.")
    return Plan(small.lifted(choice), bound)


def by_search(small: Reduced, seconds: float) -> Plan:
    """Take turns: prices from the cost of a plan, then a better plan from the prices."""
    deadline = monotonic() + seconds
    graph, dual = small.graph, Dual(small.graph)
    start = descended(graph, smallest(graph))
    cost = graph.cost_of(start)
    target = float(cost) if cost < BARRED else math.inf
    search = None
    for turn, (of_dual, of_search) in enumerate(_TURNS):
        until = monotonic() + of_dual * seconds
        while monotonic() < until:
            choice = dual.sweep(target)
        if search is None:
            search = ForestSearch(dual, choice)
        search.run(min(deadline, monotonic() + of_search * seconds), seed=turn)
        target = min(target, search.cost)
    assert search is not None
    best = search.best if search.cost < cost else start
    if best is None or graph.cost_of(best) >= BARRED:
        raise InfeasibleDecision("No plan within the limit on memory was found in time.")
    return Plan(small.lifted(best), dual.proven())


def quick_bound(problem: PlacementProblem) -> int:
    """Return a proven bound, by work that does not depend on the machine's speed."""
    graph = reduced(graph_of(problem)).graph
    if len(graph.pairs) <= MOST_PAIRS:
        return relaxed(graph, 1e9, math.inf)[0]
    dual = Dual(graph)
    for _ in range(_SWEEPS):
        dual.sweep()
    return dual.proven()
