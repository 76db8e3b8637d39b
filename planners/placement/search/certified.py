"""The best plan in a given time, with a proven bound: reductions, then a method for the size.

| the reduced graph has | method |
| --- | --- |
| few pairs of states | message passing; without a proof, integer programme and branch and bound |
| many | message passing for bound and prices, then search by forests |
"""

import math
from dataclasses import replace
from time import monotonic

from harness.contract import InfeasibleDecision
from planners.placement.problem import Choice, PlacementProblem, Plan, cost_of
from planners.placement.search.branching import branched
from planners.placement.search.dual import Dual
from planners.placement.search.forest import ForestSearch
from planners.placement.search.graph import BARRED, Graph, graph_of
from planners.placement.search.linear import Programme, rounded
from planners.placement.search.published import descended, smallest
from planners.placement.search.reduction import Reduced, reduced

MOST_PAIRS = 200_000
_FOR_PROGRAMME = 0.6
_EQUAL = 1e-9  # the relative error of the solver's prices
_SWEEPS = 60
_MOST_SWEEPS = 400  # they take a tenth of the time of the linear programme
# Shares of the time: for prices before each start, and for a search from it.
_FOR_PRICES = (0.1, 0.1, 0.1, *[0.0] * 9)
_FOR_START = 0.03


def certified(problem: PlacementProblem) -> Plan:
    """Return the best plan within the problem's seconds; raises InfeasibleDecision without one."""
    began = monotonic()
    small = reduced(graph_of(problem))
    left = problem.seconds - (monotonic() - began)
    if len(small.graph.pairs) <= MOST_PAIRS:
        if plan := _proven_by_messages(small):
            return plan
        plan = by_programme(small, _FOR_PROGRAMME * left)
        cost = cost_of(problem, plan.choice)
        if cost * (1 - _EQUAL) <= plan.bound:
            return plan
        return replace(plan, bound=branched(small.graph, cost, began + problem.seconds))
    return by_search(small, left)


def by_forests(problem: PlacementProblem) -> Plan:
    """Return the plan of `by_search` within the problem's seconds."""
    return by_search(reduced(graph_of(problem)), problem.seconds)


def unreduced(problem: PlacementProblem) -> Plan:
    """Return the plan of the integer programme of the whole problem within its seconds."""
    return by_programme(Reduced(graph_of(problem)), problem.seconds)


def _proven_by_messages(small: Reduced) -> Plan | None:
    """Return a plan whose cost is the bound of message passing, None if there is none."""
    dual, least = Dual(small.graph), math.inf
    for _ in range(_MOST_SWEEPS):
        choice = dual.sweep(least)
        cost = small.graph.cost_of(choice)
        if cost < least and small.graph.fits(choice):
            least, best = cost, choice
        if dual.bound >= least * (1 - _EQUAL) and dual.proven() >= least:
            return Plan(small.lifted(best), int(least))
    return None


def by_programme(small: Reduced, seconds: float) -> Plan:
    """Return the integer programme's plan, with the bound of its relaxation."""
    deadline = monotonic() + seconds
    graph = small.graph
    start, cost = _started(graph)
    programme = Programme(graph, 1e9 if start is None else cost)
    bound, _, fractions = programme.relax(deadline)
    if fractions is not None:
        choice = rounded(graph, fractions)
        if graph.fits(choice) and graph.cost_of(choice) * (1 - _EQUAL) <= bound:
            return Plan(small.lifted(choice), bound)  # the relaxation takes whole states
    return Plan(small.lifted(_found(programme.solve(deadline, start))), bound)


def by_search(small: Reduced, seconds: float) -> Plan:
    """Search from several starts, with prices that aim at the least cost so far.

    The first steps decide how good a search becomes, more than its length. So the searches are
    short, and only the best one goes on.
    """
    deadline = monotonic() + seconds
    dual = Dual(small.graph)
    best, least = _started(small.graph)
    searches = []
    for seed, of_dual in enumerate(_FOR_PRICES):
        choice = dual.run(monotonic() + of_dual * seconds, least)
        search = ForestSearch(dual, choice)
        search.run(min(deadline, monotonic() + _FOR_START * seconds), seed)
        searches.append(search)
        if search.best is not None:
            least = min(least, search.cost)
    search = min(searches, key=lambda search: search.cost)
    search.run(deadline, seed=len(searches))
    return Plan(small.lifted(_found(search.best if search.cost <= least else best)), dual.proven())


def _started(graph: Graph) -> tuple[Choice | None, float]:
    """Return the plan of coordinate descent and its cost; None and infinity if it is forbidden."""
    start = descended(graph, smallest(graph))
    cost = graph.cost_of(start)
    fits = cost < BARRED and graph.fits(start)
    return (start, float(cost)) if fits else (None, math.inf)


def _found(choice: Choice | None) -> Choice:
    if choice is None:
        raise InfeasibleDecision("No plan within the limit on memory was found in time.")
    return choice


def quick_bound(problem: PlacementProblem) -> int:
    """Return a proven bound, by work that does not depend on the machine's speed."""
    graph = reduced(graph_of(problem)).graph
    if len(graph.pairs) <= MOST_PAIRS:
        return Programme(graph, 1e9).relax(math.inf).bound
    dual = Dual(graph)
    for _ in range(_SWEEPS):
        dual.sweep()
    return dual.proven()
