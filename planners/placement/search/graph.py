"""The graph that searches work on: nodes with blocks of memory, edges, and moments with capacity.

A node of the problem has one block of memory. A node of a reduced graph stands for many nodes of
the problem, and has their blocks. Forbidden costs are `BARRED`, so that sums fit into 64 bits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from harness.contract import InfeasibleDecision
from planners.placement.problem import Bools, Choice, Ints, PlacementProblem

F = TypeVar("F", bound=Callable[..., Any])
Number = TypeVar("Number", np.int64, np.float64)

BARRED = 2**50
"""The cost of a forbidden state or pair; every larger cost of a file counts as forbidden."""

_MOST_EVENTS = 1000  # a moment is compared with others until so many blocks begin or end
_NONE = np.zeros(0, dtype=np.int64)


def compiled(function: F) -> F:
    """Compile a function at its first call, and keep the machine code on disk.

    A compiled function calls only functions of its own file, because numba's cache on disk watches
    the file of the function alone.
    """
    return cast(F, njit(cache=True)(function))


class Graph(NamedTuple):
    """Nodes with states, edges with matrices, and blocks of memory; compiled loops take it whole.

    The states, blocks and halves of a node stand together, and so have one array of their begins:
    those of node i are from first[i] to before first[i + 1]. Half 2 * e is the tail's end of edge
    e, half 2 * e + 1 the head's. Machine code knows the order of the fields: whoever changes it
    must also touch the files with compiled loops.

    Attributes:
        first, cost: the begins of the nodes' states, and the costs of states.
        tail, head, offset, pairs: as in the problem.
        owner: the node of each block.
        begin, end: the half-open interval of moments of each block.
        block: where the bytes of each block begin in `usage`, one number for each state.
        usage: the bytes.
        capacity: the bytes that all blocks together may use at each moment.
        constant: the cost to add to every choice.
        first_half, halves: the begins of the nodes' halves, and the halves.
        near, far: the node that has each half, and its neighbour.
        matrix, own, across: by half; state s of the node and state t of the neighbour have the
            cost pairs[matrix + s * own + t * across].
        message: shape (2 * edges + 1,); where the message of each half begins.
        first_block: the begins of the nodes' blocks, which are in the order of nodes.
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
    first_half: Ints = _NONE
    halves: Ints = _NONE
    near: Ints = _NONE
    far: Ints = _NONE
    matrix: Ints = _NONE
    own: Ints = _NONE
    across: Ints = _NONE
    message: Ints = _NONE
    first_block: Ints = _NONE

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.first) - 1

    @property
    def widths(self) -> Ints:
        """The number of states of each node."""
        return np.diff(self.first)

    def cost_of(self, choice: Choice) -> int:
        """Return the cost of a choice; at least BARRED if it takes something forbidden."""
        at = self.offset[:-1] + choice[self.tail] * self.widths[self.head] + choice[self.head]
        states = self.cost[self.first[:-1] + choice]
        return self.constant + int(states.sum()) + int(self.pairs[at].sum())

    def used_by(self, choice: Choice) -> Ints:
        """Return the bytes that a choice uses at each moment."""
        return self.spread(self.usage[self.block + choice[self.owner]])

    def fits(self, choice: Choice) -> bool:
        """Return whether a choice is within the capacity at every moment."""
        return bool((self.used_by(choice) <= self.capacity).all())

    def spread(self, values: NDArray[Number]) -> NDArray[Number]:
        """Return the sum of the values of the live blocks at each moment."""
        change = np.zeros(len(self.capacity) + 1, dtype=values.dtype)
        np.add.at(change, self.begin, values)
        np.subtract.at(change, self.end, values)
        return np.cumsum(change)[:-1]

    def bytes_of_states(self) -> tuple[Ints, Ints, Ints]:
        """Return the states of all blocks in turn, their bytes, and their blocks."""
        widths = self.widths[self.owner]
        block, state = np.repeat(np.arange(len(widths)), widths), counting(widths)
        return self.first[self.owner[block]] + state, self.usage[self.block[block] + state], block


def counting(lengths: Ints) -> Ints:
    """Return 0, 1, ... up to before each length, for one length after the other."""
    return np.arange(int(lengths.sum())) - np.repeat(begins_of(lengths)[:-1], lengths)


def begins_of(lengths: Ints) -> Ints:
    """Return where each of consecutive parts begins, and the end of all."""
    return np.concatenate([[0], np.cumsum(lengths)])


def graph_of(problem: PlacementProblem) -> Graph:
    """Return the graph of a problem; raises InfeasibleDecision if the memory is too small.

    Memory can peak only at moments when a node starts and no other one starts before the next end
    (these are the maximal cliques of the interval graph), so all other times are left out.
    """
    alive = np.flatnonzero(problem.end > problem.start)
    start, end = problem.start[alive], problem.end[alive]
    times = np.unique(np.concatenate([start, end]))
    starts, ends = np.isin(times, start), np.isin(times, end)
    moments = times[:-1][starts[:-1] & ends[1:]]
    return tightened(
        Graph(
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
    )


def tightened(graph: Graph) -> Graph:
    """Return an equal graph with only the moments and blocks that matter, and with its halves.

    Raises InfeasibleDecision if even the smallest states do not fit into memory.
    """
    # 1. The least bytes of every block are taken from the capacity.
    states, usage, block = graph.bytes_of_states()
    widths = graph.widths[graph.owner]
    begins = begins_of(widths)[:-1]
    least = np.minimum.reduceat(usage, begins) if len(begins) else begins
    most = np.maximum.reduceat(usage, begins) if len(begins) else begins
    usage -= least[block]
    capacity = graph.capacity - graph.spread(least)
    if capacity.min(initial=0) < 0:
        raise InfeasibleDecision("Even the smallest states do not fit into memory.")
    # 2. Moments at which even the largest states of all blocks fit cannot bind. Neither can those
    # whose limit follows from another moment's.
    kept = np.flatnonzero(graph.spread(most - least) > capacity)
    begin, end = np.searchsorted(kept, graph.begin), np.searchsorted(kept, graph.end)
    binds = np.ones(len(kept), dtype=np.bool_)
    events = np.concatenate([begin, end])
    order = np.argsort(events, kind="stable")
    first_event = np.searchsorted(events[order], np.arange(len(kept) + 2))
    varying = graph._replace(block=begins, usage=usage, capacity=capacity[kept])
    mark_implied(varying, order, first_event, binds)
    kept = kept[binds]
    # 3. Blocks that are alive at no such moment do not matter. Blocks of a node that are alive at
    # the same moments become one.
    begin, end = np.searchsorted(kept, graph.begin), np.searchsorted(kept, graph.end)
    matters = np.flatnonzero((most > least) & (end > begin))
    moments = len(kept) + 1
    key = ((graph.owner * moments + begin) * moments + end)[matters]
    _, at, which = np.unique(key, return_index=True, return_inverse=True)
    owner = graph.owner[matters][at]
    block_of = np.full(len(widths), -1)
    block_of[matters] = which
    begins = begins_of(graph.widths[owner])
    summed = np.zeros(begins[-1], dtype=np.int64)
    taken = block_of[block] >= 0
    state = states - graph.first[graph.owner[block]]
    np.add.at(summed, (begins[block_of[block]] + state)[taken], usage[taken])
    # 4. The least cost of every node is a part of the constant.
    cheapest = np.minimum.reduceat(graph.cost, graph.first[:-1])
    cost = np.where(graph.cost < BARRED, graph.cost - np.repeat(cheapest, graph.widths), graph.cost)
    # 5. The halves of each node.
    ends = np.stack([graph.tail, graph.head], axis=1)
    near, columns = ends.ravel(), graph.widths[graph.head]
    strides = np.stack([columns, np.ones_like(columns)], axis=1)
    halves, nodes = np.argsort(near, kind="stable"), np.arange(graph.nodes + 1)
    return graph._replace(
        cost=cost,
        owner=owner,
        begin=begin[matters][at],
        end=end[matters][at],
        block=begins[:-1],
        usage=summed,
        capacity=capacity[kept],
        constant=graph.constant + int(cheapest[cheapest < BARRED].sum()),
        first_half=np.searchsorted(near[halves], nodes),
        halves=halves,
        near=near,
        far=ends[:, ::-1].ravel(),
        matrix=np.repeat(graph.offset[:-1], 2),
        own=strides.ravel(),
        across=strides[:, ::-1].ravel(),
        message=begins_of(graph.widths[near]),
        first_block=np.searchsorted(owner, nodes),
    )


@compiled
def mark_implied(graph: Graph, events: Ints, first_event: Ints, binds: Bools) -> None:
    """Mark each moment whose limit on memory follows from that of another moment.

    At moment i a choice uses at most what it uses at moment j, and for each node the largest
    difference between its bytes at i and at j. Those before moment j and from it on differ by the
    blocks that begin or end there: `events` has the number of a block for its begin, and with the
    number of all blocks added for its end.
    """
    first, usage, capacity, blocks = graph.first, graph.usage, graph.capacity, len(graph.owner)
    if not len(capacity):
        return
    more, most = np.zeros(first[-1], np.int64), np.zeros(len(first) - 1, np.int64)
    touched, least = np.empty(2 * blocks, np.int64), np.min(capacity)
    for way in range(2):
        for i in range(len(capacity)):
            j, total, count = i, 0, 0
            # No moment has a capacity below the least, so a larger difference hardly helps.
            while binds[i] and total + least <= capacity[i] and count < _MOST_EVENTS:
                j += 1 if way == 0 else -1
                if j < 0 or j == len(capacity):
                    break
                border = j if way == 0 else j + 1
                for at in range(first_event[border], first_event[border + 1]):
                    is_begin = events[at] < blocks
                    b = events[at] % blocks
                    node, sign = graph.owner[b], -1 if is_begin == (way == 0) else 1
                    total -= most[node]
                    most[node] = -(2**62)
                    for s in range(first[node + 1] - first[node]):
                        more[first[node] + s] += sign * usage[graph.block[b] + s]
                        most[node] = max(most[node], more[first[node] + s])
                    total += most[node]
                    touched[count] = node
                    count += 1
                if binds[j] and total + capacity[j] <= capacity[i]:
                    binds[i] = False
            for node in touched[:count]:
                most[node] = 0
                more[first[node] : first[node + 1]] = 0
