"""The rules of reductions, as loops over arrays that run compiled or in Python.

Every rule keeps a best choice. Arguments named `alive`, `cost`, `states` and `pairs` are
changed in place where a docstring says so.
"""

from typing import NamedTuple

import numpy as np

from planners.placement.problem import Bools, Ints
from planners.placement.search.graph import BARRED, Graph, compiled


class Step(NamedTuple):
    """The way back from a smaller graph to the one before.

    Attributes:
        into: the new node that each old node became, or became a part of.
        at, states: for each old node, where its states by the new node's state begin, and they.
    """

    into: Ints
    at: Ints
    states: Ints


@compiled
def mark_inconsistent(graph: Graph, alive: Bools) -> None:
    """Mark each state as dead that allows no state of a neighbour, until none does."""
    first, pairs = graph.first, graph.pairs
    count, is_changed, forward = len(graph.near), True, True
    while is_changed:
        is_changed = False
        for position in range(count):
            half = position if forward else count - 1 - position  # chains need both directions
            node, other = graph.near[half], graph.far[half]
            begin, own, across = graph.matrix[half], graph.own[half], graph.across[half]
            for s in range(first[node + 1] - first[node]):
                if not alive[first[node] + s]:
                    continue
                has_partner = False
                for t in range(first[other + 1] - first[other]):
                    is_allowed = pairs[begin + s * own + t * across] < BARRED
                    if is_allowed and alive[first[other] + t]:
                        has_partner = True
                        break
                if not has_partner:
                    alive[first[node] + s] = False
                    is_changed = True
        forward = not forward


@compiled
def separate(graph: Graph, cost: Ints) -> Bools:
    """Add separable matrices, a[s] + b[t], to the costs of states; return which edges stay."""
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
def follow(graph: Graph, cost: Ints, is_live: Bools, is_leaf: Bools, states: Ints) -> Ints:
    """Return for each node the half by which it becomes a part of a neighbour, -1 if it stays.

    It may if each state of the neighbour leaves the node one best state, which is written to
    `states`, where the message of the half begins. A node with a single edge may take its cheapest
    state, if none uses fewer bytes in a block. A node that takes another one stays in this step, so
    that no node follows from a changed one.
    """
    first, pairs, message = graph.first, graph.pairs, graph.message
    first_block, block, usage = graph.first_block, graph.block, graph.usage
    by, takes = np.full(len(first) - 1, -1), np.zeros(len(first) - 1, dtype=np.bool_)
    for half in range(len(graph.near)):
        node, other = graph.near[half], graph.far[half]
        if not is_live[half >> 1] or by[node] >= 0 or by[other] >= 0 or takes[other]:
            continue
        begin, own, across = graph.matrix[half], graph.own[half], graph.across[half]
        width, follows = first[other + 1] - first[other], True
        for s in range(first[node + 1] - first[node]):
            best, least, allowed = 0, BARRED, 0
            for t in range(width):
                value = pairs[begin + s * own + t * across]
                if value < BARRED:
                    allowed += 1
                    value += cost[first[other] + t]
                    if allowed == 1 or value < least:
                        best, least = t, value
            if allowed > 1 and not is_leaf[other]:
                follows = False
            elif allowed > 1:
                for b in range(first_block[other], first_block[other + 1]):
                    for t in range(width):
                        is_allowed = pairs[begin + s * own + t * across] < BARRED
                        if is_allowed and usage[block[b] + t] < usage[block[b] + best]:
                            follows = False
            if not follows:
                break
            states[message[half] + s] = best
        if follows:
            by[other], takes[node] = half, True
    return by


@compiled
def add_matrices(graph: Graph, is_live: Bools, step: Step, new: Graph, target: Ints) -> None:
    """Add the matrices of live edges to the new graph's edges, or to its costs inside a node.

    `target` is the new edge of each edge between two nodes.
    """
    into, at, states = step.into, step.at, step.states
    for edge in range(len(target)):
        if not is_live[edge]:
            continue
        u, v = graph.tail[edge], graph.head[edge]
        columns = graph.first[v + 1] - graph.first[v]
        a, b = into[u], into[v]
        rows_of_a, rows_of_b = new.first[a + 1] - new.first[a], new.first[b + 1] - new.first[b]
        for s in range(rows_of_a):
            row = graph.offset[edge] + states[at[u] + s] * columns
            if a == b:
                place, value = new.first[a] + s, graph.pairs[row + states[at[v] + s]]
                # Costs may be negative, so a forbidden one is not a large summand.
                new.cost[place] = BARRED if value >= BARRED else new.cost[place] + value
                continue
            for t in range(rows_of_b):
                place = s * rows_of_b + t if a < b else t * rows_of_a + s
                place += new.offset[target[edge]]
                value = new.pairs[place] + graph.pairs[row + states[at[v] + t]]
                new.pairs[place] = min(value, BARRED)


@compiled
def mark_dominated(graph: Graph, alive: Bools) -> None:
    """Mark each state as dead that another one dominates."""
    first, cost, pairs = graph.first, graph.cost, graph.pairs
    first_block, block, usage = graph.first_block, graph.block, graph.usage
    suits = np.zeros(len(graph.near), dtype=np.int64)
    for node in range(len(first) - 1):
        width = first[node + 1] - first[node]
        mine = alive[first[node] : first[node] + width]
        begin, end = graph.first_half[node], graph.first_half[node + 1]
        for s in range(width):
            # 1. The state of each neighbour that suits s best. With these states alone, most other
            # states cost more than s, which saves trying all states of the neighbours.
            for at in range(begin, end):
                half = graph.halves[at]
                other, row = graph.far[half], graph.matrix[half] + s * graph.own[half]
                least = BARRED
                for x in range(first[other + 1] - first[other]):
                    value = pairs[row + x * graph.across[half]]
                    if value < least and alive[first[other] + x]:
                        suits[at], least = x, value
            for t in range(width):
                if s == t or not mine[s] or not mine[t]:
                    continue
                worse = cost[first[node] + t] - cost[first[node] + s]
                for at in range(begin, end):
                    half = graph.halves[at]
                    column = graph.matrix[half] + suits[at] * graph.across[half]
                    new = pairs[column + t * graph.own[half]]
                    worse += new - pairs[column + s * graph.own[half]]
                    if new >= BARRED:
                        worse = BARRED
                        break
                if worse > 0:
                    continue
                # 2. State t must use no more bytes in any block.
                worse = cost[first[node] + t] - cost[first[node] + s]
                for b in range(first_block[node], first_block[node + 1]):
                    if usage[block[b] + t] > usage[block[b] + s]:
                        worse = BARRED
                        break
                # 3. Its cost must not be higher with the worst states of all neighbours.
                for at in range(begin, end):
                    if worse >= BARRED:
                        break
                    half = graph.halves[at]
                    other, own, across = graph.far[half], graph.own[half], graph.across[half]
                    worst = -BARRED
                    for x in range(first[other + 1] - first[other]):
                        column = graph.matrix[half] + x * across
                        old, new = pairs[column + s * own], pairs[column + t * own]
                        if old < BARRED and alive[first[other] + x]:
                            worst = max(worst, new - old)
                            if new >= BARRED:
                                worst = BARRED
                                break
                    worse = BARRED if worst >= BARRED else worse + worst
                if worse <= 0:
                    mine[s] = False
