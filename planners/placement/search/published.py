"""Published methods: coordinate descent, and the approximate solvers of AutoParallel."""

from dataclasses import replace
from time import monotonic

import numpy as np

from harness.contract import NotApplicable
from planners.placement.problem import Choice, Ints, PlacementProblem, Plan, peak_of
from planners.placement.search.dual import Dual
from planners.placement.search.graph import BARRED, Graph, compiled, graph_of
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
    relaxed = programme.relax(monotonic() + problem.seconds)
    if relaxed.fractions is None:
        raise NotApplicable("The linear relaxation was not solved in time.")
    return Plan(_checked(problem, graph, rounded(graph, relaxed.fractions)), relaxed.bound)


def _checked(problem: PlacementProblem, graph: Graph, choice: Choice) -> Choice:
    if graph.cost_of(choice) >= BARRED:
        raise NotApplicable("The states that it rounds to are forbidden together.")
    if (used := peak_of(problem, choice)) > problem.limit:
        raise NotApplicable(f"Its plan uses {used / problem.limit:.1%} of the memory.")
    return choice


def smallest(graph: Graph) -> Choice:
    """Return the states with the fewest bytes, summed over moments; the cheapest of equal ones."""
    states, of_block, block = graph.bytes_of_states()
    usage = np.zeros(len(graph.cost))
    np.add.at(usage, states, of_block * (graph.end - graph.begin)[block].astype(float))
    owners = np.repeat(np.arange(graph.nodes), graph.widths)
    order = np.lexsort((graph.cost, usage, owners))
    return order[graph.first[:-1]] - graph.first[:-1]


def descended(graph: Graph, start: Choice, is_compiled: bool = True) -> Choice:
    """Return the choice at which coordinate descent ends; memory rises nowhere above the capacity.

    Where the start uses too many bytes, it stays above the capacity.
    """
    choice = start.copy()
    run = descend if is_compiled else getattr(descend, "py_func", descend)
    run(graph, graph.capacity - graph.used_by(choice), choice, _SWEEPS)
    return choice


@compiled
def descend(graph: Graph, free: Ints, choice: Choice, sweeps: int) -> None:
    """Change the choice, and the free bytes at each moment, until no node has a cheaper state."""
    first, block, usage, begin, end = graph.first, graph.block, graph.usage, graph.begin, graph.end
    for _ in range(sweeps):
        is_changed = False
        for node in range(len(first) - 1):
            # 1. The cost of each state, with the neighbours as they are.
            width = first[node + 1] - first[node]
            costs = graph.cost[first[node] : first[node + 1]].copy()
            for half in graph.halves[graph.first_half[node] : graph.first_half[node + 1]]:
                row = graph.matrix[half] + choice[graph.far[half]] * graph.across[half]
                for s in range(width):
                    costs[s] += graph.pairs[row + s * graph.own[half]]
            # 2. The cheapest state that fits; ties go to the lower number.
            blocks = range(graph.first_block[node], graph.first_block[node + 1])
            now = choice[node]
            best = now
            for s in range(width):
                if costs[s] >= costs[best]:
                    continue
                fits = True
                for b in blocks:
                    more = usage[block[b] + s] - usage[block[b] + now]
                    if more > 0 and np.min(free[begin[b] : end[b]]) < more:
                        fits = False
                        break
                if fits:
                    best = s
            if best != now:
                for b in blocks:
                    free[begin[b] : end[b]] -= usage[block[b] + best] - usage[block[b] + now]
                choice[node] = best
                is_changed = True
        if not is_changed:
            return
