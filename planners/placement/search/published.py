"""Published methods: coordinate descent, and the approximate solvers of AutoParallel."""

from dataclasses import replace
from time import monotonic

from harness.contract import NotApplicable
from planners.placement.problem import Choice, PlacementProblem, Plan, peak_of
from planners.placement.search.descent import descended, smallest
from planners.placement.search.dual import Dual, proven
from planners.placement.search.graph import BARRED, Graph, graph_of
from planners.placement.search.linear import Programme, rounded
from planners.placement.search.reduction import Reduced, reduced

_SWEEPS = 100


def by_descent(problem: PlacementProblem, is_reduced: bool, is_compiled: bool) -> Plan:
    """Return the plan of coordinate descent from the smallest states, of the reduced graph or all.

    The loops run compiled or in Python.
    """
    graph = graph_of(problem)
    small = reduced(graph, is_compiled) if is_reduced else Reduced(graph)
    choice = descended(small.graph, smallest(small.graph), is_compiled)
    return Plan(small.lifted(choice))


def by_messages(problem: PlacementProblem) -> Plan:
    """Return the plan of message passing that knows no memory, improved by descent.

    Raises NotApplicable if the plan does not fit.
    """
    graph = graph_of(replace(problem, limit=2**62))
    dual = Dual(graph)
    choices = [dual.sweep() for _ in range(_SWEEPS)]
    choice = descended(graph, min(choices, key=graph.cost_of))
    return Plan(_checked(problem, graph, choice), dual.proven())


def by_rounding(problem: PlacementProblem) -> Plan:
    """Return the states with the largest fractions in the linear relaxation.

    Raises NotApplicable if they do not fit, or the relaxation is not solved in time.
    """
    graph = graph_of(problem)
    programme = Programme(graph, float(problem.cost.max(initial=1)))
    fractions = programme.relax(monotonic() + problem.seconds)
    if fractions is None:
        raise NotApplicable("The linear relaxation was not solved in time.")
    bound = proven(graph, programme.messages, programme.prices)
    return Plan(_checked(problem, graph, rounded(graph, fractions)), bound)


def _checked(problem: PlacementProblem, graph: Graph, choice: Choice) -> Choice:
    if graph.cost_of(choice) >= BARRED:
        raise NotApplicable("The states that it rounds to are forbidden together.")
    if (used := peak_of(problem, choice)) > problem.limit:
        raise NotApplicable(f"Its plan uses {used / problem.limit:.1%} of the memory.")
    return choice
