"""The ends of edges, by node."""

import numpy as np

from planners.placement.search.graph import Graph


class Halves:
    """Halves of edges by node: half 2 * e is the tail's end of edge e, half 2 * e + 1 the head's.

    Attributes:
        begins: shape (nodes + 1,); where the halves of each node begin in `halves`.
        halves: the halves of all nodes.
        message: shape (2 * edges + 1,); where the message of each half begins.
    """

    def __init__(self, graph: Graph) -> None:
        ends = np.stack([graph.tail, graph.head], axis=1).ravel()
        self.halves = np.argsort(ends, kind="stable")
        self.begins = np.searchsorted(ends[self.halves], np.arange(graph.nodes + 1))
        self.message = np.concatenate([[0], np.cumsum(np.diff(graph.first)[ends])])
