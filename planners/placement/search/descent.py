"""Coordinate descent: each node in turn takes its cheapest state that fits."""

import numpy as np

from planners.placement.compiled import compiled
from planners.placement.problem import Choice, Ints
from planners.placement.search.graph import Graph
from planners.placement.search.halves import Halves

_SWEEPS = 100


def smallest(graph: Graph) -> Choice:
    """Return the states with the fewest bytes, summed over moments; the cheapest of equal ones."""
    usage = np.zeros(len(graph.cost), dtype=np.float64)
    widths = np.diff(graph.first)
    for at, owner, moments in zip(
        graph.block.tolist(),
        graph.owner.tolist(),
        (graph.end - graph.begin).tolist(),
        strict=True,
    ):
        begin = graph.first[owner]
        usage[begin : begin + widths[owner]] += graph.usage[at : at + widths[owner]] * float(
            moments
        )
    owners = np.repeat(np.arange(graph.nodes), widths)
    order = np.lexsort((graph.cost, usage, owners))
    return order[graph.first[:-1]] - graph.first[:-1]


def descended(graph: Graph, start: Choice, is_compiled: bool = True) -> Choice:
    """Return the choice at which coordinate descent ends; memory never rises above the capacity."""
    choice, halves = start.copy(), Halves(graph)
    blocks = np.argsort(graph.owner, kind="stable")
    run = descend if is_compiled else getattr(descend, "py_func", descend)
    run(
        graph.first,
        graph.cost,
        graph.tail,
        graph.head,
        graph.offset,
        graph.pairs,
        halves.begins,
        halves.halves,
        np.searchsorted(graph.owner[blocks], np.arange(graph.nodes + 1)),
        blocks,
        graph.begin,
        graph.end,
        graph.block,
        graph.usage,
        graph.capacity - graph.used_by(choice),
        choice,
        _SWEEPS,
    )
    return choice


@compiled
def descend(
    first: Ints,
    cost: Ints,
    tail: Ints,
    head: Ints,
    offset: Ints,
    pairs: Ints,
    begins: Ints,
    halves: Ints,
    of_node: Ints,
    blocks: Ints,
    begin: Ints,
    end: Ints,
    block: Ints,
    usage: Ints,
    free: Ints,
    choice: Choice,
    sweeps: int,
) -> None:
    """Change the choice, and the free bytes at each moment, until no node has a cheaper state."""
    for _ in range(sweeps):
        is_changed = False
        for node in range(len(first) - 1):
            # 1. The cost of each state, with the neighbours as they are.
            width = first[node + 1] - first[node]
            costs = cost[first[node] : first[node + 1]].copy()
            for at in range(begins[node], begins[node + 1]):
                half = halves[at]
                edge = half >> 1
                columns = first[head[edge] + 1] - first[head[edge]]
                for s in range(width):
                    if half & 1 == 0:
                        costs[s] += pairs[offset[edge] + s * columns + choice[head[edge]]]
                    else:
                        costs[s] += pairs[offset[edge] + choice[tail[edge]] * columns + s]
            # 2. The cheapest state that fits; ties go to the lower number.
            now = choice[node]
            best = now
            for s in range(width):
                if costs[s] >= costs[best]:
                    continue
                fits = True
                for at in range(of_node[node], of_node[node + 1]):
                    b = blocks[at]
                    more = usage[block[b] + s] - usage[block[b] + now]
                    if more > 0 and np.min(free[begin[b] : end[b]]) < more:
                        fits = False
                        break
                if fits:
                    best = s
            if best != now:
                for at in range(of_node[node], of_node[node + 1]):
                    b = blocks[at]
                    free[begin[b] : end[b]] -= usage[block[b] + best] - usage[block[b] + now]
                choice[node] = best
                is_changed = True
        if not is_changed:
            return
