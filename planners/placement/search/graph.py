"""The graph that searches work on: nodes with blocks of memory, edges, and moments with capacity.

A node of the problem has one block of memory. A node of a reduced graph stands for many nodes of
the problem, and has their blocks. Forbidden costs are `BARRED`, so that sums fit into 64 bits.
"""

from dataclasses import dataclass

import numpy as np

from planners.placement.problem import Choice, Ints, PlacementProblem

BARRED = 2**50
"""The cost of a forbidden state or pair; every larger cost of a file counts as forbidden."""


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Nodes with states, edges with matrices, and blocks of memory.

    Attributes:
        first, cost: as in the problem.
        tail, head, offset, pairs: as in the problem.
        owner: the node of each block.
        begin, end: the half-open interval of moments of each block.
        block: where the bytes of each block begin in `usage`, one number for each state.
        usage: the bytes.
        capacity: the bytes that all blocks together may use at each moment.
        constant: the cost to add to every choice.
    """

    first: Ints
    cost: Ints
    tail: Ints
    head: Ints
    offset: Ints
    pairs: Ints
    owner: Ints
    begin: Ints
    end: Ints
    block: Ints
    usage: Ints
    capacity: Ints
    constant: int = 0

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.first) - 1

    def cost_of(self, choice: Choice) -> int:
        """Return the cost of a choice; at least BARRED if it takes something forbidden."""
        width = np.diff(self.first)[self.head]
        pairs = self.pairs[self.offset[:-1] + choice[self.tail] * width + choice[self.head]]
        states = self.cost[self.first[:-1] + choice]
        return self.constant + int(states.sum()) + int(pairs.sum())

    def used_by(self, choice: Choice) -> Ints:
        """Return the bytes that a choice uses at each moment."""
        return self.spread(self.usage[self.block + choice[self.owner]])

    def spread(self, values: Ints) -> Ints:
        """Return the sum of the values of the live blocks at each moment."""
        change = np.zeros(len(self.capacity) + 1, dtype=values.dtype)
        np.add.at(change, self.begin, values)
        np.subtract.at(change, self.end, values)
        return np.cumsum(change)[:-1]


def graph_of(problem: PlacementProblem) -> Graph:
    """Return the graph of a problem.

    Memory can peak only at moments when a node starts and no other one starts before the next end
    (these are the maximal cliques of the interval graph), so all other times are left out.
    """
    alive = np.flatnonzero(problem.end > problem.start)
    start, end = problem.start[alive], problem.end[alive]
    times = np.unique(np.concatenate([start, end]))
    starts, ends = np.isin(times, start), np.isin(times, end)
    moments = times[:-1][starts[:-1] & ends[1:]]
    return Graph(
        first=problem.first,
        cost=np.minimum(problem.cost, BARRED),
        tail=problem.tail,
        head=problem.head,
        offset=problem.offset,
        pairs=np.minimum(problem.pairs, BARRED),
        owner=alive,
        begin=np.searchsorted(moments, start),
        end=np.searchsorted(moments, end),
        block=problem.first[alive],
        usage=problem.usage,
        capacity=np.full(len(moments), problem.limit, dtype=np.int64),
    )


def fewest_moments(graph: Graph) -> Graph:
    """Return the graph without blocks of equal states, and without moments that cannot overflow.

    The least bytes of every block are taken from the capacity.
    """
    widths = np.diff(graph.first)[graph.owner]
    at = np.repeat(graph.block, widths) + counting(widths)
    begins = np.cumsum(widths) - widths
    usage = graph.usage[at]
    least = np.minimum.reduceat(usage, begins) if len(begins) else begins
    most = np.maximum.reduceat(usage, begins) if len(begins) else begins
    capacity = graph.capacity - graph.spread(least)
    # 1. Moments at which even the largest states of all blocks fit cannot bind.
    binds = graph.spread(most - least) > capacity
    # 2. Of the moments between two ends or starts of blocks that vary, only the tightest can bind.
    varies = (most > least) & (graph.end > graph.begin)
    changes = np.zeros(len(capacity) + 1, dtype=bool)
    changes[graph.begin[varies]] = changes[graph.end[varies]] = True
    stretch = np.cumsum(changes[:-1])
    order = np.lexsort((capacity, stretch))
    order = order[binds[order]]
    _, tightest = np.unique(stretch[order], return_index=True)
    kept = np.sort(order[tightest])
    # 3. Blocks that are alive at no such moment cannot matter.
    begin, end = np.searchsorted(kept, graph.begin), np.searchsorted(kept, graph.end)
    matters = varies & (end > begin)
    states = np.repeat(matters, widths)
    return Graph(
        graph.first,
        graph.cost,
        graph.tail,
        graph.head,
        graph.offset,
        graph.pairs,
        owner=graph.owner[matters],
        begin=begin[matters],
        end=end[matters],
        block=np.cumsum(widths[matters]) - widths[matters],
        usage=(usage - np.repeat(least, widths))[states],
        capacity=capacity[kept],
        constant=graph.constant,
    )


def counting(lengths: Ints) -> Ints:
    """Return 0, 1, ... up to before each length, for one length after the other."""
    total = int(lengths.sum())
    return np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
