"""Coordinate descent: each node in turn takes its cheapest state that fits."""

import numpy as np

from planners.placement.problem import Choice, Ints
from planners.placement.search.graph import Graph, compiled

_SWEEPS = 100


def smallest(graph: Graph) -> Choice:
    """Return the states with the fewest bytes, summed over moments; the cheapest of equal ones."""
    states, places, block = graph.bytes_of_states()
    usage = np.zeros(len(graph.cost))
    np.add.at(usage, states, graph.usage[places] * (graph.end - graph.begin)[block].astype(float))
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
    first, cost, tail, head = graph.first, graph.cost, graph.tail, graph.head
    offset, pairs, block, usage = graph.offset, graph.pairs, graph.block, graph.usage
    begin, end = graph.begin, graph.end
    for _ in range(sweeps):
        is_changed = False
        for node in range(len(first) - 1):
            # 1. The cost of each state, with the neighbours as they are.
            width = first[node + 1] - first[node]
            costs = cost[first[node] : first[node + 1]].copy()
            for at in range(graph.first_half[node], graph.first_half[node + 1]):
                edge, is_tail = graph.halves[at] >> 1, graph.halves[at] & 1 == 0
                columns = first[head[edge] + 1] - first[head[edge]]
                for s in range(width):
                    if is_tail:
                        costs[s] += pairs[offset[edge] + s * columns + choice[head[edge]]]
                    else:
                        costs[s] += pairs[offset[edge] + choice[tail[edge]] * columns + s]
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
