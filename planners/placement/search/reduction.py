"""Exact reductions of a graph: every rule keeps a best choice, and a way back to it.

1. Arc consistency: a state goes if it allows no state of a neighbour.
2. Separable edges: a matrix a[s] + b[t] becomes costs of the states.
3. Merging: a node whose state follows from a neighbour's state becomes a part of the neighbour.
4. Dominance: a state goes if another one costs no more, whatever the neighbours choose, and uses
   no more bytes in any block.
"""

from typing import NamedTuple

import numpy as np

from harness.contract import InfeasibleDecision
from planners.placement.problem import Bools, Choice, Ints
from planners.placement.search.graph import (
    BARRED,
    Graph,
    begins_of,
    compiled,
    counting,
    tightened,
)


class Step(NamedTuple):
    """The way back from a smaller graph to the one before.

    Attributes:
        into: the new node that each old node became, or became a part of.
        at, states: for each old node, where its states by the new node's state begin, and they.
    """

    into: Ints
    at: Ints
    states: Ints


class Reduced(NamedTuple):
    """A reduced graph, and the steps that led to it."""

    graph: Graph
    steps: tuple[Step, ...] = ()

    def lifted(self, choice: Choice) -> Choice:
        """Return the choice of the original graph for a choice of the reduced one."""
        for step in reversed(self.steps):
            choice = step.states[step.at + choice[step.into]]
        return choice


def reduced(graph: Graph) -> Reduced:
    """Apply all rules; raises InfeasibleDecision if they show that no choice is valid."""
    return Reduction(graph).run()


class Reduction:
    """A graph that becomes smaller in steps.

    Attributes:
        waits: whether dominance has to look at a node, because something changed near it.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.steps: list[Step] = []
        self.waits = np.ones(graph.nodes, dtype=np.bool_)

    def run(self) -> Reduced:
        """Apply the rules until none applies; dominance waits for the others: it takes longest."""
        while self._drop_inconsistent() or self._merge() or self._drop_dominated():
            pass
        return Reduced(self.graph, tuple(self.steps))

    def _drop_inconsistent(self) -> bool:
        alive = self.graph.cost < BARRED
        mark_inconsistent(self.graph, alive)
        return self._keep(alive)

    def _drop_dominated(self) -> bool:
        alive = np.ones(len(self.graph.cost), dtype=np.bool_)
        mark_dominated(self.graph, self.waits, alive)
        if alive.all() and not self.waits.all():  # less memory may bind now, so look everywhere
            mark_dominated(self.graph, np.ones_like(self.waits), alive)
        self.waits[:] = False
        return self._keep(alive)

    def _keep(self, alive: Bools) -> bool:
        if alive.all() and self.steps:  # the first step also adds up parallel edges
            return False
        graph = self.graph
        counts = np.add.reduceat(alive.astype(np.int64), graph.first[:-1])
        if not counts.all():
            raise InfeasibleDecision("Every choice takes something forbidden.")
        step = Step(np.arange(graph.nodes), begins_of(counts)[:-1], counting(graph.widths)[alive])
        is_live = np.ones(len(graph.tail), dtype=np.bool_)
        self._become(step, counts, graph.cost, is_live, counts < graph.widths)
        return True

    def _merge(self) -> bool:
        graph, cost = self.graph, self.graph.cost.copy()
        is_live = separate(graph, cost)
        into, at, states = merge(graph, cost, is_live)
        is_kept = into == np.arange(graph.nodes)
        if is_live.all() and is_kept.all():
            return False
        changed = np.zeros(graph.nodes, dtype=np.bool_)
        changed[into[~is_kept]] = True
        changed[graph.tail[~is_live]] = changed[graph.head[~is_live]] = True
        number = np.cumsum(is_kept) - 1
        self._become(Step(number[into], at, states), graph.widths[is_kept], cost, is_live, changed)
        return True

    def _become(self, step: Step, widths: Ints, cost: Ints, is_live: Bools, changed: Bools) -> None:
        """Make the graph of a step from new costs and the live edges; `widths` are the new ones."""
        graph, first = self.graph, begins_of(widths)
        # 1. Costs of states.
        lengths, local, old_states = self._states(step, np.arange(graph.nodes), widths)
        costs = np.zeros(first[-1], dtype=np.int64)
        added = cost[np.repeat(graph.first[:-1], lengths) + old_states]
        np.add.at(costs, np.repeat(first[step.into], lengths) + local, added)
        # 2. Edges; those between the same two nodes become one.
        u, v = step.into[graph.tail], step.into[graph.head]
        between = np.flatnonzero(is_live & (u != v))
        low, high = np.minimum(u, v)[between], np.maximum(u, v)[between]
        key, which = np.unique(low * len(widths) + high, return_inverse=True)
        tail, head = np.divmod(key, len(widths))
        offset = begins_of(widths[tail] * widths[head])
        target = np.full(len(u), -1)
        target[between] = which
        pairs = np.zeros(offset[-1], dtype=np.int64)
        add_matrices(graph, is_live, step, first, target, offset, costs, pairs)
        # 3. Blocks of memory.
        lengths, _, old_states = self._states(step, graph.owner, widths)
        self.graph = tightened(
            Graph(
                first=first,
                cost=costs,
                tail=tail,
                head=head,
                offset=offset,
                pairs=pairs,
                owner=step.into[graph.owner],
                begin=graph.begin,
                end=graph.end,
                block=begins_of(lengths)[:-1],
                usage=graph.usage[np.repeat(graph.block, lengths) + old_states],
                capacity=graph.capacity,
                constant=graph.constant,
            )
        )
        self.steps.append(step)
        # 4. Dominance has to look at what changed, and at its neighbours.
        near = np.zeros(len(widths), dtype=np.bool_)
        near[step.into[changed]] = True
        touched = near[tail] | near[head]
        near[tail[touched]] = near[head[touched]] = True
        near[step.into[self.waits]] = True
        self.waits = near

    @staticmethod
    def _states(step: Step, nodes: Ints, widths: Ints) -> tuple[Ints, Ints, Ints]:
        """Return for old nodes the number of new states, and these with their old states."""
        lengths = widths[step.into[nodes]]
        local = counting(lengths)
        return lengths, local, step.states[np.repeat(step.at[nodes], lengths) + local]


@compiled
def mark_inconsistent(graph: Graph, alive: Bools) -> None:
    """Mark each state as dead that allows no state of a neighbour, until none does."""
    first, tail, head = graph.first, graph.tail, graph.head
    offset, pairs = graph.offset, graph.pairs
    edges, is_changed, forward = len(tail), True, True
    while is_changed:
        is_changed = False
        for position in range(edges):
            edge = position if forward else edges - 1 - position  # chains need both directions
            columns = first[head[edge] + 1] - first[head[edge]]
            for way in range(2):
                node, other = tail[edge], head[edge]
                step, across = columns, 1
                if way == 1:
                    node, other, step, across = other, node, 1, columns
                for s in range(first[node + 1] - first[node]):
                    if alive[first[node] + s]:
                        has_partner = False
                        for t in range(first[other + 1] - first[other]):
                            value = pairs[offset[edge] + s * step + t * across]
                            if value < BARRED and alive[first[other] + t]:
                                has_partner = True
                                break
                        if not has_partner:
                            alive[first[node] + s] = False
                            is_changed = True
        forward = not forward


@compiled
def separate(graph: Graph, cost: Ints) -> Bools:
    """Move separable matrices into the costs of states; return which edges stay."""
    first, tail, head = graph.first, graph.tail, graph.head
    offset, pairs = graph.offset, graph.pairs
    is_live = np.zeros(len(tail), dtype=np.bool_)
    for edge in range(len(tail)):
        u, v = first[tail[edge]], first[head[edge]]
        rows, columns = first[tail[edge] + 1] - u, first[head[edge] + 1] - v
        matrix = pairs[offset[edge] : offset[edge + 1]]
        for s in range(rows):
            for t in range(columns):
                value = matrix[s * columns + t]
                both = matrix[s * columns] + matrix[t]
                if value >= BARRED or value + matrix[0] != both:
                    is_live[edge] = True
                    break
            if is_live[edge]:
                break
        if not is_live[edge]:
            for s in range(rows):
                cost[u + s] += matrix[s * columns]
            for t in range(columns):
                cost[v + t] += matrix[t] - matrix[0]
    return is_live


@compiled
def _follow(
    graph: Graph, cost: Ints, edge: int, kept: int, gone: int, is_leaf: bool, follows: Ints
) -> bool:
    """Return whether each state of `kept` leaves one best state of `gone`, and note it.

    A node with a single edge may leave the cheapest state, if none uses fewer bytes in a block.
    """
    first, offset, pairs = graph.first, graph.offset, graph.pairs
    block, usage = graph.block, graph.usage
    width = first[gone + 1] - first[gone]
    columns = first[graph.head[edge] + 1] - first[graph.head[edge]]
    is_tail = graph.tail[edge] == kept
    step, across = columns if is_tail else 1, 1 if is_tail else columns
    for s in range(first[kept + 1] - first[kept]):
        best, least, allowed = 0, BARRED, 0
        for t in range(width):
            value = pairs[offset[edge] + s * step + t * across]
            if value < BARRED:
                allowed += 1
                value += cost[first[gone] + t]
                if allowed == 1 or value < least:
                    best, least = t, value
        if allowed > 1 and not is_leaf:
            return False
        if allowed > 1:
            for b in range(graph.first_block[gone], graph.first_block[gone + 1]):
                for t in range(width):
                    is_allowed = pairs[offset[edge] + s * step + t * across] < BARRED
                    if is_allowed and usage[block[b] + t] < usage[block[b] + best]:
                        return False
        follows[s] = best
    return True


@compiled
def merge(graph: Graph, cost: Ints, is_live: Bools) -> tuple[Ints, Ints, Ints]:
    """Merge nodes along live edges; return `into`, `at` and `states` of `Step`, with old nodes.

    A node that takes another one stays in this step, so that no node follows from a changed one.
    """
    first, tail, head = graph.first, graph.tail, graph.head
    nodes = len(first) - 1
    widths = first[1:] - first[:-1]
    degree = np.zeros(nodes, dtype=np.int64)
    for edge in range(len(tail)):
        if is_live[edge]:
            degree[tail[edge]] += 1
            degree[head[edge]] += 1
    into, at, size = np.arange(nodes), np.zeros(nodes, dtype=np.int64), 0
    states = np.empty(nodes * np.max(widths), dtype=np.int64)
    takes = np.zeros(nodes, dtype=np.bool_)
    # 1. Nodes that follow from a neighbour.
    for edge in range(len(tail)):
        for way in range(2):
            kept, gone = tail[edge], head[edge]
            if way == 1:
                kept, gone = gone, kept
            if not is_live[edge] or into[kept] != kept or into[gone] != gone or takes[gone]:
                continue
            follows = states[size : size + widths[kept]]
            if _follow(graph, cost, edge, kept, gone, degree[gone] == 1, follows):
                into[gone], at[gone], takes[kept] = kept, size, True
                size += widths[kept]
    # 2. Nodes without a choice become a part of one with many states.
    home = into[np.argmax(widths)]
    for node in range(nodes):
        if into[node] == node and widths[node] == 1 and degree[node] == 0 and node != home:
            into[node], at[node] = home, size
            states[size : size + widths[home]] = 0
            size += widths[home]
    # 3. Nodes that stay.
    for node in range(nodes):
        if into[node] == node:
            at[node] = size
            for s in range(widths[node]):
                states[size + s] = s
            size += widths[node]
    return into, at, states[:size].copy()


@compiled
def add_matrices(
    graph: Graph,
    is_live: Bools,
    step: Step,
    first: Ints,
    target: Ints,
    offset: Ints,
    cost: Ints,
    pairs: Ints,
) -> None:
    """Add the matrices of live edges to new edges, or inside a node to the costs of its states."""
    into, at, states = step.into, step.at, step.states
    for edge in range(len(target)):
        if not is_live[edge]:
            continue
        u, v = graph.tail[edge], graph.head[edge]
        columns = graph.first[v + 1] - graph.first[v]
        a, b = into[u], into[v]
        rows_of_a, rows_of_b = first[a + 1] - first[a], first[b + 1] - first[b]
        for s in range(rows_of_a):
            row = graph.offset[edge] + states[at[u] + s] * columns
            if a == b:
                value = graph.pairs[row + states[at[v] + s]]
                place = first[a] + s
                cost[place] = BARRED if value >= BARRED else min(cost[place] + value, BARRED)
                continue
            for t in range(rows_of_b):
                place = s * rows_of_b + t if a < b else t * rows_of_a + s
                place += offset[target[edge]]
                value = graph.pairs[row + states[at[v] + t]]
                pairs[place] = min(pairs[place] + value, BARRED)


@compiled
def mark_dominated(graph: Graph, waits: Bools, alive: Bools) -> None:
    """Mark each state of the waiting nodes as dead that another one dominates."""
    first, cost, tail, head = graph.first, graph.cost, graph.tail, graph.head
    offset, pairs, block, usage = graph.offset, graph.pairs, graph.block, graph.usage
    halves, first_half, first_block = graph.halves, graph.first_half, graph.first_block
    for node in range(len(waits)):
        begin = first[node]
        width = first[node + 1] - begin if waits[node] else 0
        for s in range(width):
            for t in range(width):
                if s == t or not alive[begin + s] or not alive[begin + t]:
                    continue
                worse = cost[begin + t] - cost[begin + s]
                # 1. State t must use no more bytes in any block.
                for b in range(first_block[node], first_block[node + 1]):
                    if usage[block[b] + t] > usage[block[b] + s]:
                        worse = BARRED
                        break
                # 2. Its cost must not be higher with the worst states of all neighbours.
                for at in range(first_half[node], first_half[node + 1]):
                    if worse >= BARRED:
                        break
                    edge = halves[at] >> 1
                    is_tail = halves[at] & 1 == 0
                    other = head[edge] if is_tail else tail[edge]
                    columns = first[head[edge] + 1] - first[head[edge]]
                    step, across = columns if is_tail else 1, 1 if is_tail else columns
                    worst = -BARRED
                    for x in range(first[other + 1] - first[other]):
                        old = pairs[offset[edge] + s * step + x * across]
                        if old < BARRED and alive[first[other] + x]:
                            new = pairs[offset[edge] + t * step + x * across]
                            worst = max(worst, new - old)
                            if new >= BARRED:
                                worst = BARRED
                                break
                    worse = BARRED if worst >= BARRED else worse + worst
                if worse <= 0:
                    alive[begin + s] = False
