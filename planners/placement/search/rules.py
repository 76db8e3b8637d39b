"""Exact reductions of a graph: every rule keeps a best choice, and a way back to it.

1. Arc consistency: a state goes if it allows no state of a neighbour.
2. Separable edges: a matrix a[s] + b[t] becomes costs of the states.
3. Merging: a node whose state follows from a neighbour's state becomes a part of the neighbour.
4. Dominance: a state goes if another one costs no more, whatever the neighbours choose, and uses
   no more bytes in any block.

Edges and nodes whose surroundings changed wait in two stacks, until both are empty.
"""

from typing import Any

import numpy as np

from planners.placement.compiled import compiled
from planners.placement.problem import Bools, Ints
from planners.placement.search.graph import BARRED

_NONE = -1


@compiled
def _sum(a: int, b: int) -> int:
    return BARRED if a >= BARRED or b >= BARRED else a + b


@compiled
def _link(half: int, node: int, top: Ints, after: Ints, before: Ints) -> None:
    """Put half an edge before the others of a node."""
    after[half] = top[node]
    before[half] = _NONE
    if top[node] >= 0:
        before[top[node]] = half
    top[node] = half


@compiled
def _unlink(half: int, node: int, top: Ints, after: Ints, before: Ints) -> None:
    if before[half] >= 0:
        after[before[half]] = after[half]
    else:
        top[node] = after[half]
    if after[half] >= 0:
        before[after[half]] = before[half]


@compiled
def _room(pool: Ints, size: int) -> Ints:
    """Return the pool, or a copy with space for `size` numbers."""
    if size <= len(pool):
        return pool
    larger = np.empty(max(size, 2 * len(pool)), dtype=np.int64)
    larger[: len(pool)] = pool
    return larger


@compiled
def _dominated(
    node: int,
    first: Ints,
    alive: Bools,
    cost: Ints,
    tail: Ints,
    head: Ints,
    offset: Ints,
    pairs: Ints,
    top: Ints,
    after: Ints,
    block_top: Ints,
    block_after: Ints,
    block: Ints,
    usage: Ints,
) -> int:
    """Mark the dominated states of a node as dead; return their number."""
    begin, width, killed = first[node], first[node + 1] - first[node], 0
    for s in range(width):
        for t in range(width):
            if s == t or not alive[begin + s] or not alive[begin + t]:
                continue
            # 1. State t must use no more bytes in any block.
            b = block_top[node]
            while b >= 0 and usage[block[b] + t] <= usage[block[b] + s]:
                b = block_after[b]
            if b >= 0:
                continue
            # 2. Its cost must not be higher with the worst states of all neighbours.
            worse = cost[begin + t] - cost[begin + s]
            half = top[node]
            while half >= 0:
                edge = half >> 1
                is_tail = half & 1 == 0
                other = head[edge] if is_tail else tail[edge]
                columns = first[head[edge] + 1] - first[head[edge]]
                worst = -BARRED
                for x in range(first[other + 1] - first[other]):
                    if not alive[first[other] + x]:
                        continue
                    if is_tail:
                        old = pairs[offset[edge] + s * columns + x]
                        new = pairs[offset[edge] + t * columns + x]
                    else:
                        old = pairs[offset[edge] + x * columns + s]
                        new = pairs[offset[edge] + x * columns + t]
                    if old < BARRED:
                        worst = max(worst, new - old if new < BARRED else BARRED)
                    if worst >= BARRED:
                        break
                worse += worst
                if worst >= BARRED:
                    break
                half = after[half]
            if half < 0 and worse <= 0:
                alive[begin + s] = False
                killed += 1
    return killed


@compiled
def _followed(
    kept: int,
    gone: int,
    edge: int,
    first: Ints,
    alive: Bools,
    cost: Ints,
    tail: Ints,
    head: Ints,
    offset: Ints,
    pairs: Ints,
    is_leaf: bool,
    block_top: Ints,
    block_after: Ints,
    block: Ints,
    usage: Ints,
    follows: Ints,
) -> bool:
    """Return whether each state of `kept` leaves one best state of `gone`, and note it.

    A node with a single edge may leave the cheapest state, if none uses fewer bytes in a block.
    """
    width, columns = first[gone + 1] - first[gone], first[head[edge] + 1] - first[head[edge]]
    for s in range(first[kept + 1] - first[kept]):
        follows[s] = 0
        if not alive[first[kept] + s]:
            continue
        best, least, allowed = _NONE, BARRED, 0
        for t in range(width):
            if not alive[first[gone] + t]:
                continue
            at = s * columns + t if tail[edge] == kept else t * columns + s
            value = pairs[offset[edge] + at]
            if value >= BARRED:
                continue
            allowed += 1
            value += cost[first[gone] + t]
            if best < 0 or value < least:
                best, least = t, value
        if allowed > 1 and not is_leaf:
            return False
        if allowed > 1:
            for t in range(width):
                at = s * columns + t if tail[edge] == kept else t * columns + s
                if not alive[first[gone] + t] or pairs[offset[edge] + at] >= BARRED:
                    continue
                b = block_top[gone]
                while b >= 0:
                    if usage[block[b] + t] < usage[block[b] + best]:
                        return False
                    b = block_after[b]
        follows[s] = best
    return True


@compiled
def reduce_all(
    first: Ints,
    cost: Ints,
    tail: Ints,
    head: Ints,
    offset: Ints,
    room: Ints,
    pairs: Ints,
    owner: Ints,
    block: Ints,
    usage: Ints,
) -> tuple[Any, ...]:
    """Apply all rules until none applies; changes the arrays. `room` is the size of matrices."""
    nodes, edges = len(first) - 1, len(tail)
    alive = np.ones(len(cost), dtype=np.bool_)
    is_live = np.ones(edges, dtype=np.bool_)
    is_merged = np.zeros(nodes, dtype=np.bool_)
    top = np.full(nodes, _NONE)
    after, before = np.full(2 * edges, _NONE), np.full(2 * edges, _NONE)
    mark = np.full(nodes, _NONE)
    block_top, block_after = np.full(nodes, _NONE), np.full(len(owner), _NONE)
    for b in range(len(owner)):
        block_after[b] = block_top[owner[b]]
        block_top[owner[b]] = b
    widest = 0
    for node in range(nodes):
        widest = max(widest, first[node + 1] - first[node])
        if first[node + 1] - first[node] > 1:
            for state in range(first[node], first[node + 1]):
                if cost[state] >= BARRED:
                    alive[state] = False
    merged, count_merged = np.empty(nodes, dtype=np.int64), 0
    into, lift_at = np.full(nodes, _NONE), np.zeros(nodes, dtype=np.int64)
    lift, lift_size = np.empty(max(nodes, 1024), dtype=np.int64), 0
    pairs_size, usage_size = len(pairs), len(usage)
    buffer = np.empty(widest * widest, dtype=np.int64)
    follows = np.empty(widest, dtype=np.int64)
    edge_stack, edge_waits = np.empty(edges, dtype=np.int64), np.zeros(edges, dtype=np.bool_)
    node_stack, node_waits = np.arange(nodes), np.ones(nodes, dtype=np.bool_)
    edges_waiting, nodes_waiting = 0, nodes
    for edge in range(edges):
        _link(2 * edge, tail[edge], top, after, before)
        _link(2 * edge + 1, head[edge], top, after, before)
    # Parallel edges become one.
    for node in range(nodes):
        half = top[node]
        while half >= 0:
            edge, following = half >> 1, after[half]
            other = head[edge] if half & 1 == 0 else tail[edge]
            first_edge = mark[other]
            if first_edge < 0:
                mark[other] = edge
            else:
                columns = first[head[edge] + 1] - first[head[edge]]
                width = first[head[first_edge] + 1] - first[head[first_edge]]
                for s in range(first[tail[edge] + 1] - first[tail[edge]]):
                    for t in range(columns):
                        at = s * width + t if tail[edge] == tail[first_edge] else t * width + s
                        at += offset[first_edge]
                        pairs[at] = _sum(pairs[at], pairs[offset[edge] + s * columns + t])
                is_live[edge] = False
                _unlink(2 * edge, tail[edge], top, after, before)
                _unlink(2 * edge + 1, head[edge], top, after, before)
            half = following
        half = top[node]
        while half >= 0:
            mark[head[half >> 1] if half & 1 == 0 else tail[half >> 1]] = _NONE
            half = after[half]
    for edge in range(edges - 1, -1, -1):
        if is_live[edge]:
            edge_stack[edges_waiting] = edge
            edge_waits[edge] = True
            edges_waiting += 1
    is_possible = True
    while is_possible and edges_waiting + nodes_waiting > 0:
        # Nodes wait until no edge does, because dominance takes longest.
        if edges_waiting == 0:
            nodes_waiting -= 1
            node = node_stack[nodes_waiting]
            node_waits[node] = False
            if is_merged[node]:
                continue
            changed = _dominated(
                node,
                first,
                alive,
                cost,
                tail,
                head,
                offset,
                pairs,
                top,
                after,
                block_top,
                block_after,
                block,
                usage,
            )
            shrunk, other_shrunk = (node if changed > 0 else _NONE), _NONE
        else:
            edges_waiting -= 1
            edge = edge_stack[edges_waiting]
            edge_waits[edge] = False
            if not is_live[edge]:
                continue
            u, v = tail[edge], head[edge]
            rows, columns, matrix = first[u + 1] - first[u], first[v + 1] - first[v], offset[edge]
            # 1. Arc consistency. A state that went had no partner, so one pass is enough.
            shrunk, other_shrunk = _NONE, _NONE
            s_first, t_first, u_left, v_left = _NONE, _NONE, 0, 0
            for s in range(rows):
                if alive[first[u] + s]:
                    has_partner = False
                    for t in range(columns):
                        if alive[first[v] + t] and pairs[matrix + s * columns + t] < BARRED:
                            has_partner = True
                            break
                    if has_partner:
                        u_left += 1
                        s_first = s if s_first < 0 else s_first
                    else:
                        alive[first[u] + s] = False
                        shrunk = u
            for t in range(columns):
                if alive[first[v] + t]:
                    has_partner = False
                    for s in range(rows):
                        if alive[first[u] + s] and pairs[matrix + s * columns + t] < BARRED:
                            has_partner = True
                            break
                    if has_partner:
                        v_left += 1
                        t_first = t if t_first < 0 else t_first
                    else:
                        alive[first[v] + t] = False
                        other_shrunk = v
            if u_left == 0 or v_left == 0:
                is_possible = False
                break
            # 2. A separable matrix becomes costs of states.
            is_separable = True
            corner = pairs[matrix + s_first * columns + t_first]
            for s in range(rows):
                if not is_separable or not alive[first[u] + s]:
                    continue
                row = pairs[matrix + s * columns + t_first]
                for t in range(columns):
                    if alive[first[v] + t]:
                        value = pairs[matrix + s * columns + t]
                        column = pairs[matrix + s_first * columns + t]
                        if value >= BARRED or value + corner != row + column:
                            is_separable = False
                            break
            kept, gone = _NONE, _NONE
            if is_separable:
                for s in range(rows):
                    if alive[first[u] + s]:
                        cost[first[u] + s] += pairs[matrix + s * columns + t_first]
                for t in range(columns):
                    if alive[first[v] + t]:
                        cost[first[v] + t] += pairs[matrix + s_first * columns + t] - corner
                is_live[edge] = False
                _unlink(2 * edge, u, top, after, before)
                _unlink(2 * edge + 1, v, top, after, before)
                shrunk, other_shrunk = u, v
            else:
                # 3. A node that follows from the other one becomes a part of it.
                for way in range(2):
                    a, b = (u, v) if way == 0 else (v, u)
                    is_leaf = after[top[b]] < 0
                    if _followed(
                        a,
                        b,
                        edge,
                        first,
                        alive,
                        cost,
                        tail,
                        head,
                        offset,
                        pairs,
                        is_leaf,
                        block_top,
                        block_after,
                        block,
                        usage,
                        follows,
                    ):
                        kept, gone = a, b
                        break
            if kept >= 0:
                height = first[kept + 1] - first[kept]
                # 3a. Costs of the node and of the edge.
                for s in range(height):
                    if alive[first[kept] + s]:
                        t = follows[s]
                        at = s * columns + t if kept == u else t * columns + s
                        cost[first[kept] + s] += cost[first[gone] + t] + pairs[matrix + at]
                is_live[edge] = False
                _unlink(2 * edge, u, top, after, before)
                _unlink(2 * edge + 1, v, top, after, before)
                half = top[kept]
                while half >= 0:
                    mark[head[half >> 1] if half & 1 == 0 else tail[half >> 1]] = half >> 1
                    half = after[half]
                # 3b. Its other edges.
                half = top[gone]
                while half >= 0:
                    g, following = half >> 1, after[half]
                    is_tail = half & 1 == 0
                    other = head[g] if is_tail else tail[g]
                    width = first[other + 1] - first[other]
                    old_columns = first[head[g] + 1] - first[head[g]]
                    for s in range(height):
                        t = follows[s]
                        for x in range(width):
                            at = t * old_columns + x if is_tail else x * old_columns + t
                            buffer[s * width + x] = pairs[offset[g] + at]
                    _unlink(2 * g, tail[g], top, after, before)
                    _unlink(2 * g + 1, head[g], top, after, before)
                    target = mark[other]
                    if target >= 0:
                        is_live[g] = False
                        target_columns = first[head[target] + 1] - first[head[target]]
                        for s in range(height):
                            for x in range(width):
                                is_same = tail[target] == kept
                                at = s * target_columns + x if is_same else x * target_columns + s
                                at += offset[target]
                                pairs[at] = _sum(pairs[at], buffer[s * width + x])
                    else:
                        target, size = g, height * width
                        if size > room[g]:
                            pairs = _room(pairs, pairs_size + size)
                            offset[g], room[g] = pairs_size, size
                            pairs_size += size
                        pairs[offset[g] : offset[g] + size] = buffer[:size]
                        tail[g], head[g] = kept, other
                        _link(2 * g, kept, top, after, before)
                        _link(2 * g + 1, other, top, after, before)
                    if not edge_waits[target]:
                        edge_stack[edges_waiting] = target
                        edge_waits[target] = True
                        edges_waiting += 1
                    half = following
                half = top[kept]
                while half >= 0:
                    mark[head[half >> 1] if half & 1 == 0 else tail[half >> 1]] = _NONE
                    half = after[half]
                # 3c. Its blocks of memory; those without a choice need no place in the list.
                b = block_top[gone]
                while b >= 0:
                    following = block_after[b]
                    usage = _room(usage, usage_size + height)
                    low, high = np.int64(2**62), np.int64(-1)
                    for s in range(height):
                        value = usage[block[b] + follows[s]]
                        usage[usage_size + s] = value
                        if alive[first[kept] + s]:
                            low, high = min(low, value), max(high, value)
                    block[b], owner[b] = usage_size, kept
                    usage_size += height
                    if high > low:
                        block_after[b] = block_top[kept]
                        block_top[kept] = b
                    b = following
                block_top[gone] = _NONE
                lift = _room(lift, lift_size + height)
                lift[lift_size : lift_size + height] = follows[:height]
                lift_at[gone], into[gone], is_merged[gone] = lift_size, kept, True
                lift_size += height
                merged[count_merged] = gone
                count_merged += 1
                shrunk, other_shrunk = kept, _NONE
        # All edges of changed nodes wait, and the nodes and their neighbours too.
        for node in (shrunk, other_shrunk):
            if node < 0 or is_merged[node]:
                continue
            if not node_waits[node]:
                node_stack[nodes_waiting] = node
                node_waits[node] = True
                nodes_waiting += 1
            half = top[node]
            while half >= 0:
                edge = half >> 1
                if not edge_waits[edge]:
                    edge_stack[edges_waiting] = edge
                    edge_waits[edge] = True
                    edges_waiting += 1
                other = head[edge] if half & 1 == 0 else tail[edge]
                if not node_waits[other]:
                    node_stack[nodes_waiting] = other
                    node_waits[other] = True
                    nodes_waiting += 1
                half = after[half]
    # A block that left its list has equal bytes for all living states of its last owner, and moves
    # to the node that its owner became a part of.
    for b in range(len(owner)):
        node = owner[b]
        while is_merged[node]:
            state = 0
            for s in range(first[node + 1] - first[node]):
                if alive[first[node] + s]:
                    state = s
                    break
            value = usage[block[b] + state]
            node = into[node]
            height = first[node + 1] - first[node]
            usage = _room(usage, usage_size + height)
            usage[usage_size : usage_size + height] = value
            block[b] = usage_size
            usage_size += height
        owner[b] = node
    return (
        is_possible,
        alive,
        cost,
        is_live,
        tail,
        head,
        offset,
        pairs,
        owner,
        block,
        usage,
        merged[:count_merged].copy(),
        into,
        lift_at,
        lift[:lift_size].copy(),
    )
