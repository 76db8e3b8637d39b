"""Lower bounds: sequential tree-reweighted message passing (TRW-S), with prices of memory.

Lagrange multipliers price the bytes in use at each moment, so that the limit on memory leaves the
constraints and enters the costs of states. Messages shift costs between nodes and edges such that
the sum of all minima rises (Kolmogorov, TPAMI 2006; shifts as in his SRMP, TPAMI 2015). Both are
floats and need no precision: `bounds` computes it from them again, in whole numbers.
"""

import math
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from planners.placement.problem import Choice, Ints
from planners.placement.search.graph import Graph, compiled

Floats = NDArray[np.float64]

_SCALE = 1024  # costs are multiplied by it before messages are rounded
_PRICE_BITS = 40
_MOST_GAP = 3.0  # a guess of the cost of plans over the bound, while no plan is known


class Dual:
    """Messages and prices of a graph, and the best bound so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.bytes_of_states = graph, graph.bytes_of_states()
        self.pairs = graph.pairs.astype(np.float64)
        self.messages = np.zeros(graph.message[-1])
        self.prices = np.zeros(len(graph.capacity))
        self.bound = -math.inf
        self.best = (self.messages, self.prices)
        self.used = graph.capacity.astype(np.float64)
        self.step = 0.05
        self._stalled = 0

    def run(self, deadline: float, target: float) -> Choice:
        """Sweep until the time of the monotonic clock, at least once; return the last choice."""
        while True:
            choice = self.sweep(target)
            if monotonic() >= deadline:
                return choice

    def sweep(self, target: float = math.inf) -> Choice:
        """Pass messages forward and back, change the prices, and return a choice.

        `target` is the cost of a plan; the bound never passes it.
        """
        # 1. The costs of states, with their memory at the prices.
        graph, paid = self.graph, np.concatenate([[0.0], np.cumsum(self.prices)])
        states, usage, block = self.bytes_of_states
        costs = graph.cost.astype(np.float64)
        np.add.at(costs, states, usage * (paid[graph.end] - paid[graph.begin])[block])
        choice = np.zeros(graph.nodes, dtype=np.int64)
        bound = pass_messages(graph, costs, self.pairs, self.messages, choice)
        bound += graph.constant - float(self.prices @ graph.capacity)
        # 2. Keep the best messages and prices; return to them after 25 sweeps without a gain.
        if bound > self.bound:
            if bound - self.bound > 1e-6 * abs(bound):
                self._stalled, self.step = 0, min(1.0, 1.02 * self.step)
            self.bound, self.best = bound, (self.messages.copy(), self.prices.copy())
        self._stalled += 1
        if self._stalled > 25:
            self._stalled, self.step = 0, self.step * 0.7
            self.messages, self.prices = (array.copy() for array in self.best)
        # 3. Polyak's step along the averaged use of memory above the capacity. The use of the
        # states that the bound takes is a supergradient of the bound.
        if len(graph.capacity):
            shares = shares_of_bound(graph, costs, self.pairs, self.messages)
            of_block = np.bincount(block, shares[states] * usage, len(graph.owner))
            self.used = 0.9 * self.used + 0.1 * graph.spread(of_block)
            excess = self.used - graph.capacity
            length = float(excess @ excess)
            goal = target if target < math.inf else _MOST_GAP * abs(bound)
            distance = max(goal - bound, 1e-4 * abs(bound))
            if length > 0:
                self.prices = np.maximum(self.prices + self.step * distance / length * excess, 0.0)
        return choice

    def proven(self) -> int:
        """Return a lower bound on the cost of every choice within the limit, in whole numbers."""
        return bounds(self.graph, *self.best)[0]


def bounds(graph: Graph, messages: Floats, prices: Floats) -> tuple[int, Ints]:
    """Return a lower bound on the cost of all choices, and for each state of those that take it.

    For all messages, the sum of the nodes' and edges' minima bounds the cost. For all prices of at
    least 0, the bytes of a choice within the limit cost at most what the capacity costs. Rounding
    changes the messages and prices, and so the bound, but not the proof. With a given state, the
    minima of its node and edges are those with this state.
    """
    # 1. Prices as whole multiples of a small unit, so that sums are exact in Python's integers.
    unit = 2**_PRICE_BITS
    whole = np.array([int(price * unit) for price in prices.tolist()], dtype=object)
    paid = np.concatenate([np.zeros(1, dtype=object), np.cumsum(whole)])
    limit = -(-_SCALE * int((whole * graph.capacity.astype(object)).sum()) // unit)
    states, usage, block = graph.bytes_of_states()
    of_block = (paid[graph.end] - paid[graph.begin])[block]
    is_priced = of_block.astype(bool)
    bytes_cost = np.zeros(len(graph.cost), dtype=object)
    priced = usage[is_priced].astype(object) * of_block[is_priced]
    np.add.at(bytes_cost, states[is_priced], priced)
    # 2. Rounded down and limited, the cost of bytes is only smaller.
    most = 2**58
    paid_by = [min(cost * _SCALE // unit, most) for cost in bytes_cost.tolist()]
    costs = graph.cost * _SCALE + np.array(paid_by, dtype=np.int64)
    # 3. No sum of messages may overflow.
    degree = int(np.diff(graph.first_half).max(initial=0))
    largest = float(most // (degree + 1))
    rounded = np.rint(np.clip(messages * _SCALE, -largest, largest)).astype(np.int64)
    nodes, edges, more = least_sums(graph, costs, rounded, _SCALE)
    bound = graph.constant - (limit - sum(nodes.tolist()) - sum(edges.tolist())) // _SCALE
    return bound, bound + more // _SCALE


@compiled
def pass_messages(
    graph: Graph, costs: Floats, pairs: Floats, messages: Floats, choice: Choice
) -> float:
    """Pass messages forward and back in the order of nodes; return the bound, fill `choice`.

    A message is what a node has given to an edge. After a node collects from an edge, the minimum
    of the edge is 0 for each of the node's states; so the bound is what the nodes keep.
    """
    first, begins, halves, message = graph.first, graph.first_half, graph.halves, graph.message
    far, matrix, strides, across = graph.far, graph.matrix, graph.own, graph.across
    nodes, bound, widest = len(first) - 1, 0.0, np.max(first[1:] - first[:-1])
    total, decided = np.empty(widest), np.empty(widest)
    for way in range(2):
        for position in range(nodes):
            node = position if way == 0 else nodes - 1 - position
            width = first[node + 1] - first[node]
            earlier, later = 0, 0
            for s in range(width):
                total[s] = costs[first[node] + s]
                decided[s] = total[s]
            for half in halves[begins[node] : begins[node + 1]]:
                other, own, theirs = far[half], message[half], message[half ^ 1]
                # 1. Collect from the nodes that were visited before this one.
                if (other < node) == (way == 0):
                    earlier += 1
                    for s in range(width):
                        least, row = np.inf, matrix[half] + s * strides[half]
                        for t in range(first[other + 1] - first[other]):
                            value = pairs[row + t * across[half]] + messages[theirs + t]
                            least = min(least, value)
                        messages[own + s] = -least
                else:
                    later += 1
                # 2. Decide by the states of nodes before, and by the messages of nodes after.
                for s in range(width):
                    total[s] -= messages[own + s]
                    if other < node:
                        row = matrix[half] + choice[other] * across[half]
                        decided[s] += pairs[row + s * strides[half]]
                    else:
                        decided[s] -= messages[own + s]
            if way == 0:
                choice[node] = np.argmin(decided[:width])
            # 3. Give equal parts to the edges of nodes that are visited later.
            part = 1.0 / max(earlier, later, 1)
            for half in halves[begins[node] : begins[node + 1]]:
                if (far[half] < node) != (way == 0):
                    for s in range(width):
                        messages[message[half] + s] += part * total[s]
            if way == 1:
                bound += (1.0 - part * later) * np.min(total[:width])
    return bound


@compiled
def shares_of_bound(graph: Graph, costs: Floats, pairs: Floats, messages: Floats) -> Floats:
    """Return the share of each state in the minima that make up the bound of `pass_messages`.

    A node keeps a part of its minimum, so this share of it takes the least state. What it collected
    from a later node takes the state of the later node that was the least for its own state.
    """
    first, begins, halves, message = graph.first, graph.first_half, graph.halves, graph.message
    far, matrix, strides, across = graph.far, graph.matrix, graph.own, graph.across
    nodes, shares = len(first) - 1, np.zeros(len(costs))
    part, kept = np.empty(nodes), np.empty(nodes)
    for node in range(nodes):
        degree, earlier = begins[node + 1] - begins[node], 0
        for half in halves[begins[node] : begins[node + 1]]:
            earlier += far[half] < node
        part[node] = 1.0 / max(earlier, degree - earlier, 1)
        kept[node] = 1.0 - part[node] * earlier
    for node in range(nodes):
        # 1. The share that the node keeps itself takes the least state.
        own = costs[first[node] : first[node + 1]].copy()
        for half in halves[begins[node] : begins[node + 1]]:
            own -= messages[message[half] : message[half + 1]]
        shares[first[node] + np.argmin(own)] += kept[node]
        # 2. The shares of its states take states of later nodes.
        for half in halves[begins[node] : begins[node + 1]]:
            other, theirs = far[half], message[half ^ 1]
            for s in range(len(own) if other > node else 0):
                share = shares[first[node] + s]
                least, state, row = np.inf, 0, matrix[half] + s * strides[half]
                for t in range(first[other + 1] - first[other] if share > 0.0 else 0):
                    value = pairs[row + t * across[half]] + messages[theirs + t]
                    if value < least:
                        least, state = value, t
                shares[first[other] + state] += part[other] * share
    return shares


@compiled
def least_sums(graph: Graph, costs: Ints, messages: Ints, scale: int) -> tuple[Ints, Ints, Ints]:
    """Return the minimum of each node without its messages, and of each edge with them.

    The third array has for each state by how much the sum of minima rises if it is taken.
    """
    first, tail, head, offset = graph.first, graph.tail, graph.head, graph.offset
    begins, halves, message = graph.first_half, graph.halves, graph.message
    of_node, of_edge = np.empty(len(first) - 1, np.int64), np.empty(len(tail), np.int64)
    more, most = np.empty(len(costs), np.int64), np.int64(2**61)
    for node in range(len(first) - 1):
        states = slice(first[node], first[node + 1])
        for s in range(first[node], first[node + 1]):
            more[s] = costs[s]
            for at in range(begins[node], begins[node + 1]):
                more[s] -= messages[message[halves[at]] + s - first[node]]
        of_node[node] = np.min(more[states])
        more[states] -= of_node[node]
    for edge in range(len(tail)):
        u, v = first[tail[edge]], first[head[edge]]
        rows, columns = first[tail[edge] + 1] - u, first[head[edge] + 1] - v
        of_row, of_column = np.full(rows, 2**62), np.full(columns, 2**62)
        for s in range(rows):
            for t in range(columns):
                total = graph.pairs[offset[edge] + s * columns + t] * scale
                total += messages[message[2 * edge] + s] + messages[message[2 * edge + 1] + t]
                of_row[s], of_column[t] = min(of_row[s], total), min(of_column[t], total)
        of_edge[edge] = np.min(of_row)
        for s in range(rows):  # limited, so that no sum overflows
            more[u + s] = min(more[u + s] + of_row[s] - of_edge[edge], most)
        for t in range(columns):
            more[v + t] = min(more[v + t] + of_column[t] - of_edge[edge], most)
    return of_node, of_edge, more
