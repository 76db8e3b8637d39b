"""Local search: the best states of a random forest at once, everything else unchanged.

Bytes have two prices: the multipliers of the bound, times a random factor, and a penalty for bytes
above the capacity, which falls while memory fits and rises while it does not.
"""

from time import monotonic

import numpy as np

from planners.placement.problem import Choice, Ints
from planners.placement.search.dual import Dual, Floats
from planners.placement.search.graph import Graph, compiled

_STEPS = 50
_LARGEST = 1000  # most nodes of a forest
_FEW_NODES = 500  # a larger graph has too few steps for each node to cool down


class ForestSearch:
    """A search from a start, and the best choice within the limit on memory so far."""

    def __init__(self, dual: Dual, start: Choice) -> None:
        """Begin with a choice, which may use too many bytes."""
        self.dual = dual
        self.choice = start.copy()
        self.best: Choice | None = None
        self.cost = 2**62
        # The penalty of a byte begins with the price at the dearest moment.
        self._penalty = np.array([float(dual.prices.max(initial=0.0)) or 1.0])

    def run(self, deadline: float, seed: int = 0) -> None:
        """Search from the best choice until the time of the monotonic clock, else from the last."""
        graph, bound, began = self.dual.graph, self.dual.bound, monotonic()
        begin_random(seed)
        if self.best is not None:
            self.choice = self.best.copy()
        choice, paid = self.choice, np.concatenate([[0.0], np.cumsum(self.dual.best[1])])
        used, best = graph.used_by(choice), choice.copy()
        cold = min(1.0, _FEW_NODES / graph.nodes) ** 2
        while (now := monotonic()) < deadline:
            # The temperature falls to 0. It begins with a node's share of what is left to gain.
            share = max(min(self.cost, 2 * bound) - bound, 0.0) / graph.nodes
            temperature = cold * share * (deadline - now) / (deadline - began)
            cost = graph.constant + forest_steps(
                graph,
                paid,
                choice,
                used,
                best,
                self._penalty,
                temperature,
                graph.cost_of(choice) - graph.constant,
                self.cost - graph.constant,
            )
            if cost < self.cost:
                self.cost, self.best = cost, best.copy()


@compiled
def begin_random(seed: int) -> None:
    """Seed the compiled random numbers, which are apart from NumPy's."""
    np.random.seed(seed)


@compiled
def forest_steps(
    graph: Graph,
    paid: Floats,
    choice: Choice,
    used: Ints,
    best: Choice,
    penalty: Floats,
    temperature: float,
    now: int,
    least: int,
) -> int:
    """Make some steps in place; return the least cost within the capacity, of the choice `best`.

    `paid` has the summed multipliers before each moment, `now` the cost of the choice, `least` the
    least cost so far.
    """
    first, cost, pairs = graph.first, graph.cost, graph.pairs
    first_half, halves, far = graph.first_half, graph.halves, graph.far
    first_block, begin, end = graph.first_block, graph.begin, graph.end
    block, usage, capacity = graph.block, graph.usage, graph.capacity
    nodes, moments = len(first) - 1, len(capacity)
    widest, size_limit = np.max(first[1:] - first[:-1]), min(_LARGEST, nodes)
    seen, place, region = np.full(nodes, -1), np.full(nodes, -1), np.empty(nodes, np.int64)
    # The members of a forest: the node, its parent's number, the matrix of the edge between them,
    # and the strides of the matrix for states of the node and of the parent.
    member, up = np.empty(size_limit, np.int64), np.empty(size_limit, np.int64)
    matrix, by_own, by_up = np.empty_like(up), np.empty_like(up), np.empty_like(up)
    own = np.empty((size_limit, widest), dtype=np.int64)
    table = np.empty((size_limit, widest))
    answer = np.empty((size_limit, widest), dtype=np.int64)
    state = np.empty(size_limit, dtype=np.int64)
    change = np.zeros(moments + 1, dtype=np.int64)
    full = np.zeros(moments + 1, dtype=np.int64)  # how many moments before are above capacity
    over = 0
    for m in range(moments):
        over += max(0, used[m] - capacity[m])
        full[m + 1] = full[m] + (used[m] > capacity[m])
    for step in range(_STEPS):
        # 1. The prices of this step: multipliers times a factor, and the penalty where memory is
        # full. Both are summed over moments, so that the price of an interval is a difference.
        factor = 2.0 * np.random.random()
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
            links, link = 0, -1
            shift = np.random.randint(first_half[node + 1] - first_half[node] + 1)
            degree = first_half[node + 1] - first_half[node]
            for at in range(degree):
                half = halves[first_half[node] + (at + shift) % degree]
                other = far[half]
                if place[other] >= 0:
                    links, link = links + 1, half
                elif seen[other] != step and count < nodes:
                    seen[other] = step
                    region[count] = other
                    count += 1
            if links <= 1:
                member[members], up[members] = node, -1
                if links == 1:
                    up[members], matrix[members] = place[far[link]], graph.matrix[link]
                    by_own[members], by_up[members] = graph.own[link], graph.across[link]
                place[node] = members
                members += 1
        # 3. The costs of each member's states, with the edges to nodes that stay as they are.
        for i in range(members):
            node = member[i]
            width = first[node + 1] - first[node]
            for s in range(width):
                own[i, s] = cost[first[node] + s]
            for half in halves[first_half[node] : first_half[node + 1]]:
                if place[far[half]] < 0:
                    row = graph.matrix[half] + choice[far[half]] * graph.across[half]
                    for s in range(width):
                        own[i, s] += pairs[row + s * graph.own[half]]
            for s in range(width):
                table[i, s] = own[i, s]
            for b in range(first_block[node], first_block[node + 1]):
                price = factor * (paid[end[b]] - paid[begin[b]])
                price += penalty[0] * (full[end[b]] - full[begin[b]])
                if price > 0.0:
                    for s in range(width):
                        table[i, s] += usage[block[b] + s] * price
        # 4. From the leaves to the roots: the best state of each member for its parent's state.
        for i in range(members - 1, -1, -1):
            width = first[member[i] + 1] - first[member[i]]
            if up[i] < 0:
                answer[i, 0] = np.argmin(table[i, :width])
                continue
            for t in range(first[member[up[i]] + 1] - first[member[up[i]]]):
                least_sum, best_state = np.inf, 0
                for s in range(width):
                    pair = pairs[matrix[i] + s * by_own[i] + t * by_up[i]]
                    if table[i, s] + pair < least_sum:
                        least_sum, best_state = table[i, s] + pair, s
                answer[i, t] = best_state
                table[up[i], t] += least_sum
        # 5. The change of cost and of memory.
        gain, is_other = 0, False
        for i in range(members):
            s, was = answer[i, 0], choice[member[i]]
            if up[i] >= 0:
                t, t_was = state[up[i]], choice[member[up[i]]]
                s = answer[i, t]
                gain += pairs[matrix[i] + s * by_own[i] + t * by_up[i]]
                gain -= pairs[matrix[i] + was * by_own[i] + t_was * by_up[i]]
            gain += own[i, s] - own[i, was]
            state[i] = s
            is_other = is_other or s != was
        if is_other:
            low, high = moments, 0
            for i in range(members):
                node = member[i]
                if state[i] != choice[node]:
                    for b in range(first_block[node], first_block[node + 1]):
                        more = usage[block[b] + state[i]] - usage[block[b] + choice[node]]
                        change[begin[b]] += more
                        change[end[b]] -= more
                        low, high = min(low, begin[b]), max(high, end[b])
            new_over, running = over, 0
            for m in range(low, high):
                running += change[m]
                change[m] = running
                new_over += max(0, used[m] + running - capacity[m]) - max(0, used[m] - capacity[m])
            # 6. Accept what costs no more, with bytes above the capacity at the penalty, and at
            # times what costs more (simulated annealing).
            allowed = -temperature * np.log(1.0 - np.random.random())
            if gain + penalty[0] * (new_over - over) <= allowed:
                for m in range(low, high):
                    used[m] += change[m]
                if new_over > 0 or over > 0:
                    for m in range(low, moments):
                        full[m + 1] = full[m] + (used[m] > capacity[m])
                for i in range(members):
                    choice[member[i]] = state[i]
                now += gain
                over = new_over
                if over == 0 and now < least:
                    least = now
                    best[:] = choice
            change[low : high + 1] = 0
        for i in range(members):
            place[member[i]] = -1
        penalty[0] *= 0.98 if over == 0 else 1.01
    return least
