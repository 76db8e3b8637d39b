"""Reduced graphs, and the way back from their choices to those of the original graph."""

from dataclasses import dataclass

import numpy as np

from harness.contract import InfeasibleDecision
from planners.placement.compiled import compiled
from planners.placement.problem import Bools, Choice, Ints
from planners.placement.search.graph import Graph, fewest_moments
from planners.placement.search.rules import reduce_all


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """A reduced graph, and the way back to choices of the original one.

    Attributes:
        graph: what is left.
        kept: the original node of each node.
        states: the original state of each state.
        base: a choice of the original graph that is right for nodes with a single state.
        merged: the nodes that became a part of another one, in order.
        into: for each node, the node that it became a part of.
        lift_at, lift: for each merged node, where its states by the other node's state begin.
    """

    graph: Graph
    kept: Ints
    states: Ints
    base: Choice
    merged: Ints
    into: Ints
    lift_at: Ints
    lift: Ints

    def lifted(self, choice: Choice) -> Choice:
        """Return the choice of the original graph for a choice of the reduced one."""
        whole = self.base.copy()
        whole[self.kept] = self.states[self.graph.first[:-1] + choice]
        for node in self.merged[::-1].tolist():
            whole[node] = self.lift[self.lift_at[node] + whole[self.into[node]]]
        return whole


def unreduced(graph: Graph) -> Reduced:
    """Return a graph as it is, in the form of a reduced one."""
    nodes, none = np.arange(graph.nodes), np.zeros(0, dtype=np.int64)
    states = np.arange(len(graph.cost)) - np.repeat(graph.first[:-1], np.diff(graph.first))
    return Reduced(graph, nodes, states, 0 * nodes, none, none, none, none)


def reduced(graph: Graph) -> Reduced:
    """Apply all reductions; raises InfeasibleDecision if they show that no choice is valid."""
    (is_possible, alive, cost, is_live, tail, head, offset, pairs, owner, block, usage, *back) = (
        reduce_all(
            graph.first,
            graph.cost.copy(),
            graph.tail.copy(),
            graph.head.copy(),
            graph.offset[:-1].copy(),
            np.diff(graph.offset),
            graph.pairs.copy(),
            graph.owner.copy(),
            graph.block.copy(),
            graph.usage.copy(),
        )
    )
    if not is_possible:
        raise InfeasibleDecision("Every choice takes something forbidden.")
    merged, into, lift_at, lift = back
    # 1. Nodes with edges or a choice are kept, and their states get new numbers.
    counts = np.add.reduceat(alive.astype(np.int64), graph.first[:-1])
    is_kept = counts > 1
    is_kept[merged] = False
    kept = np.flatnonzero(is_kept)
    owners = np.repeat(np.arange(graph.nodes), np.diff(graph.first))
    taken = alive & is_kept[owners]
    local = np.arange(len(owners)) - graph.first[owners]
    base = np.zeros(graph.nodes, dtype=np.int64)
    base[owners[alive]] = local[alive]
    is_single = counts == 1
    is_single[merged] = False
    constant = graph.constant + int(cost[graph.first[:-1] + base][is_single].sum())
    # 2. Edges keep the living rows and columns of their matrices.
    number = np.cumsum(is_kept) - 1
    edges = np.flatnonzero(is_live)
    new_offset, new_pairs = packed_pairs(
        edges, tail, head, offset, pairs, graph.first, alive, counts
    )
    # 3. Blocks of nodes with one state reduce the capacity in `fewest_moments`.
    of_block, new_usage = packed_usage(owner, block, usage, graph.first, alive, counts)
    is_own = is_kept[owner]
    fixed = graph.spread(np.where(is_own, 0, new_usage[of_block]))
    smaller = Graph(
        first=np.concatenate([[0], np.cumsum(counts[kept])]),
        cost=cost[taken],
        tail=number[tail[edges]],
        head=number[head[edges]],
        offset=new_offset,
        pairs=new_pairs,
        owner=number[owner[is_own]],
        begin=graph.begin[is_own],
        end=graph.end[is_own],
        block=of_block[is_own],
        usage=new_usage,
        capacity=graph.capacity - fixed,
        constant=constant,
    )
    left = fewest_moments(smaller)
    if left.capacity.min(initial=0) < 0:
        raise InfeasibleDecision("Even the smallest states do not fit into memory.")
    return Reduced(left, kept, local[taken], base, merged, into, lift_at, lift)


@compiled
def packed_pairs(
    edges: Ints,
    tail: Ints,
    head: Ints,
    offset: Ints,
    pairs: Ints,
    first: Ints,
    alive: Bools,
    counts: Ints,
) -> tuple[Ints, Ints]:
    """Return the matrices of edges without dead states, and where each begins."""
    begins = np.zeros(len(edges) + 1, dtype=np.int64)
    for i, edge in enumerate(edges):
        begins[i + 1] = begins[i] + counts[tail[edge]] * counts[head[edge]]
    packed = np.empty(begins[-1], dtype=np.int64)
    at = 0
    for edge in edges:
        u, v = tail[edge], head[edge]
        width = first[v + 1] - first[v]
        for s in range(first[u + 1] - first[u]):
            for t in range(width):
                if alive[first[u] + s] and alive[first[v] + t]:
                    packed[at] = pairs[offset[edge] + s * width + t]
                    at += 1
    return begins, packed


@compiled
def packed_usage(
    owner: Ints, block: Ints, usage: Ints, first: Ints, alive: Bools, counts: Ints
) -> tuple[Ints, Ints]:
    """Return where the bytes of each block begin, and the bytes without dead states."""
    begins = np.empty(len(owner), dtype=np.int64)
    size = 0
    for b in range(len(owner)):
        begins[b] = size
        size += counts[owner[b]]
    packed = np.empty(size, dtype=np.int64)
    at = 0
    for b in range(len(owner)):
        node = owner[b]
        for s in range(first[node + 1] - first[node]):
            if alive[first[node] + s]:
                packed[at] = usage[block[b] + s]
                at += 1
    return begins, packed
