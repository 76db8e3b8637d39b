"""Local search: the best states of a random forest at once, everything else unchanged.

Bytes have two prices: the multipliers of the bound, times a random factor, and a penalty for bytes
above the capacity, which falls while memory fits and rises while it does not.
"""

from time import monotonic

import numpy as np

from planners.placement.compiled import compiled
from planners.placement.problem import Choice, Ints
from planners.placement.search.dual import Dual, Floats
from planners.placement.search.graph import Graph

_STEPS = 50
_LARGEST = 1000
_FEW_NODES = 500  # a larger graph has too few steps for each node to cool down


class ForestSearch:
    """A choice that changes step by step, and the best one within the limit on memory so far."""

    def __init__(self, dual: Dual, start: Choice) -> None:
        """Begin with a choice, which may use too many bytes."""
        self.graph: Graph = dual.graph
        self.dual = dual
        self.choice = start.copy()
        self.best: Choice | None = None
        self.cost = 2**62
        self.steps = 0
        owner = dual.graph.owner
        self._blocks = np.argsort(owner, kind="stable")
        self._of_node = np.searchsorted(owner[self._blocks], np.arange(dual.graph.nodes + 1))
        self._penalty = np.array([self._first_penalty()])
        self._found = start.copy()

    def _first_penalty(self) -> float:
        """Return the price of a byte at the dearest moments."""
        prices = self.dual.prices
        return float(prices.max(initial=0.0)) or 1.0

    def run(self, deadline: float, seed: int = 0) -> None:
        """Search until the time of the monotonic clock; the steps depend on the seed."""
        graph, halves, began = self.graph, self.dual.halves, monotonic()
        begin_random(seed)
        paid = np.concatenate([[0.0], np.cumsum(self.dual.best[1])])
        used = graph.used_by(self.choice)
        while (now := monotonic()) < deadline:
            # The temperature falls to 0. It begins with a node's share of what is left to gain.
            share = max(min(self.cost, 2 * self.dual.bound) - self.dual.bound, 0.0) / graph.nodes
            temperature = (
                min(1.0, _FEW_NODES / graph.nodes) ** 2
                * share
                * (deadline - now)
                / (deadline - began)
            )
            cost = forest_steps(
                graph.first,
                graph.cost,
                graph.tail,
                graph.head,
                graph.offset,
                graph.pairs,
                halves.begins,
                halves.halves,
                self._of_node,
                self._blocks,
                graph.begin,
                graph.end,
                graph.block,
                graph.usage,
                graph.capacity,
                paid,
                self.choice,
                used,
                self._found,
                self._penalty,
                temperature,
                graph.cost_of(self.choice) - graph.constant,
                self.cost - graph.constant,
                _STEPS,
                _LARGEST,
            )
            self.steps += _STEPS
            if cost + graph.constant < self.cost:
                self.cost, self.best = cost + graph.constant, self._found.copy()


@compiled
def begin_random(seed: int) -> None:
    """Seed the compiled random numbers, which are apart from NumPy's."""
    np.random.seed(seed)


@compiled
def forest_steps(
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
    capacity: Ints,
    paid: Floats,
    choice: Choice,
    used: Ints,
    best: Choice,
    penalty: Floats,
    temperature: float,
    now: int,
    least: int,
    steps: int,
    largest: int,
) -> int:
    """Make some steps in place; return the least cost within the capacity, of the choice `best`.

    `paid` has the summed multipliers before each moment, `now` the cost of the choice, `least` the
    least cost so far.
    """
    nodes, moments = len(first) - 1, len(capacity)
    widest = 0
    for node in range(nodes):
        widest = max(widest, first[node + 1] - first[node])
    seen = np.full(nodes, -1)
    place = np.full(nodes, -1)
    region, parent, edge_up = np.empty(nodes, np.int64), np.empty(nodes, np.int64), seen.copy()
    size_limit = min(largest, nodes)
    own = np.empty((size_limit, widest), dtype=np.int64)
    table = np.empty((size_limit, widest))
    answer = np.empty((size_limit, widest), dtype=np.int64)
    state = np.empty(size_limit, dtype=np.int64)
    change = np.zeros(moments + 1, dtype=np.int64)
    dear = np.empty(moments + 1)
    over = 0.0
    for m in range(moments):
        over += max(0, used[m] - capacity[m])
    for step in range(steps):
        # 1. The prices of this step: multipliers times a factor, and the penalty where memory is
        # full. `dear` is summed, so that the price of an interval is a difference.
        factor = 2.0 * np.random.random()
        dear[0] = 0.0
        for m in range(moments):
            full = penalty[0] if used[m] > capacity[m] else 0.0
            dear[m + 1] = dear[m] + factor * (paid[m + 1] - paid[m]) + full
        # 2. A random region, breadth first, and in it a forest: a node with at most one neighbour
        # in the forest so far joins it; one with two might close a circle and stays as it is.
        share = np.random.random()
        size = min(size_limit, int(2.0 * np.exp(share * np.log(size_limit / 2.0 + 1))))
        start = np.random.randint(nodes)
        region[0], count, visited, members = start, 1, 0, 0
        seen[start] = step
        while visited < count and members < size:
            node = region[visited]
            visited += 1
            links, up = 0, -1
            shift = np.random.randint(begins[node + 1] - begins[node] + 1)
            degree = begins[node + 1] - begins[node]
            for at in range(degree):
                half = halves[begins[node] + (at + shift) % degree]
                other = head[half >> 1] if half & 1 == 0 else tail[half >> 1]
                if place[other] >= 0:
                    links, up = links + 1, half
                elif seen[other] != step and count < nodes:
                    seen[other] = step
                    region[count] = other
                    count += 1
            if links <= 1:
                place[node] = members
                parent[members], edge_up[members] = node, up
                members += 1
        # 3. The costs of each member's states, with the edges to nodes that stay as they are.
        for i in range(members):
            node = parent[i]
            width = first[node + 1] - first[node]
            for s in range(width):
                own[i, s] = cost[first[node] + s]
            for at in range(begins[node], begins[node + 1]):
                half = halves[at]
                edge = half >> 1
                other = head[edge] if half & 1 == 0 else tail[edge]
                if place[other] < 0:
                    columns = first[head[edge] + 1] - first[head[edge]]
                    for s in range(width):
                        if half & 1 == 0:
                            own[i, s] += pairs[offset[edge] + s * columns + choice[other]]
                        else:
                            own[i, s] += pairs[offset[edge] + choice[other] * columns + s]
            for s in range(width):
                table[i, s] = own[i, s]
            for at in range(of_node[node], of_node[node + 1]):
                b = blocks[at]
                price = dear[end[b]] - dear[begin[b]]
                if price > 0.0:
                    for s in range(width):
                        table[i, s] += usage[block[b] + s] * price
        # 4. From the leaves to the roots: the best state of each member for its parent's state.
        for i in range(members - 1, -1, -1):
            half = edge_up[i]
            if half < 0:
                state[i] = np.argmin(table[i, : first[parent[i] + 1] - first[parent[i]]])
                continue
            edge = half >> 1
            node, other = parent[i], head[edge] if half & 1 == 0 else tail[edge]
            columns = first[head[edge] + 1] - first[head[edge]]
            up = place[other]
            for t in range(first[other + 1] - first[other]):
                value, state_of = np.inf, 0
                for s in range(first[node + 1] - first[node]):
                    at = s * columns + t if half & 1 == 0 else t * columns + s
                    sum_of = table[i, s] + pairs[offset[edge] + at]
                    if sum_of < value:
                        value, state_of = sum_of, s
                answer[i, t] = state_of
                table[up, t] += value
        # 5. The change of cost and of memory.
        gain, is_other = 0, False
        for i in range(members):
            half, node = edge_up[i], parent[i]
            if half < 0:
                gain += own[i, state[i]] - own[i, choice[node]]
                is_other = is_other or state[i] != choice[node]
                continue
            edge = half >> 1
            other = head[edge] if half & 1 == 0 else tail[edge]
            columns = first[head[edge] + 1] - first[head[edge]]
            t = state[place[other]]
            s = answer[i, t]
            state[i] = s
            at = s * columns + t if half & 1 == 0 else t * columns + s
            was = choice[node], choice[other]
            old = was[0] * columns + was[1] if half & 1 == 0 else was[1] * columns + was[0]
            gain += own[i, s] - own[i, choice[node]]
            gain += pairs[offset[edge] + at] - pairs[offset[edge] + old]
            is_other = is_other or s != choice[node]
        if is_other:
            change[:] = 0
            for i in range(members):
                node = parent[i]
                if state[i] != choice[node]:
                    for at in range(of_node[node], of_node[node + 1]):
                        b = blocks[at]
                        more = usage[block[b] + state[i]] - usage[block[b] + choice[node]]
                        change[begin[b]] += more
                        change[end[b]] -= more
            new_over, running = 0.0, 0
            for m in range(moments):
                running += change[m]
                new_over += max(0, used[m] + running - capacity[m])
            # 6. Accept what costs no more, with bytes above the capacity at the penalty, and at
            # times what costs more (simulated annealing).
            allowed = -temperature * np.log(1.0 - np.random.random())
            if gain + penalty[0] * (new_over - over) <= allowed:
                running = 0
                for m in range(moments):
                    running += change[m]
                    used[m] += running
                for i in range(members):
                    choice[parent[i]] = state[i]
                now += gain
                over = new_over
                if over == 0.0 and now < least:
                    least = now
                    best[:] = choice
        for i in range(members):
            place[parent[i]] = -1
        penalty[0] *= 0.98 if over == 0.0 else 1.01
    return least
