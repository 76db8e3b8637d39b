"""The rules of reductions in their plainest form, to see whether one still applies."""

import numpy as np

from planners.placement.search.graph import BARRED, Graph


def applicable(graph: Graph) -> set[str]:
    """Return the names of the rules that can still make a graph smaller."""
    rules = set()
    ends = [
        tuple(sorted(pair)) for pair in zip(graph.tail.tolist(), graph.head.tolist(), strict=True)
    ]
    if len(ends) > len(set(ends)):
        rules.add("parallel edges")
    for edge in range(len(graph.tail)):
        matrix = matrix_of(graph, edge)
        allowed = matrix < BARRED
        if not allowed.any(axis=0).all() or not allowed.any(axis=1).all():
            rules.add("arc consistency")
        sums = matrix[:, :1] + matrix[:1] - matrix[0, 0]
        if allowed.all() and (matrix == sums).all():
            rules.add("separable edge")
        if (allowed.sum(axis=0) == 1).all() or (allowed.sum(axis=1) == 1).all():
            rules.add("merging")
    for node in range(graph.nodes):
        begin, width = graph.first[node], graph.widths[node]
        if width == 1 and graph.nodes > 1:
            rules.add("no choice")
        for s in range(width):
            for t in range(width):
                if s != t and dominates(graph, node, t, s):
                    rules.add("dominance")
        assert (graph.cost[begin : begin + width] < BARRED).all()
    for block, (begin, end) in enumerate(zip(graph.begin, graph.end, strict=True)):
        width = graph.widths[graph.owner[block]]
        most = graph.usage[graph.block[block] : graph.block[block] + width].max()
        if most > graph.capacity[begin:end].min():
            rules.add("no room")
    return rules


def matrix_of(graph: Graph, edge: int) -> np.ndarray:
    """Return the matrix of an edge, by states of its tail and of its head."""
    part = graph.pairs[graph.offset[edge] : graph.offset[edge + 1]]
    return part.reshape(graph.widths[graph.tail[edge]], -1)


def dominates(graph: Graph, node: int, t: int, s: int) -> bool:
    """Return whether state t is as good as state s, whatever the neighbours choose."""
    for block in np.flatnonzero(graph.owner == node):
        usage = graph.usage[graph.block[block] :]
        if usage[t] > usage[s]:
            return False
    worse = graph.cost[graph.first[node] + t] - graph.cost[graph.first[node] + s]
    for edge in range(len(graph.tail)):
        if node in (graph.tail[edge], graph.head[edge]):
            matrix = matrix_of(graph, edge)
            rows = matrix if graph.tail[edge] == node else matrix.T
            partners = rows[s] < BARRED
            if (rows[t][partners] >= BARRED).any():
                return False
            worse += (rows[t] - rows[s])[partners].max()
    return bool(worse <= 0)
