"""Exact reductions of a graph: every rule keeps a best choice, and a way back to it.

1. Consistency: a state goes if it allows no state of a neighbour, or does not fit into memory
   beside the least bytes of all other nodes.
2. Separable edges: a matrix a[s] + b[t] becomes costs of the states.
3. Merging: a node whose state follows from a neighbour's state becomes a part of the neighbour.
4. Dominance: a state goes if another one costs no more, whatever the neighbours choose, and uses
   no more bytes in any block.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from harness.contract import InfeasibleDecision
from planners.placement.problem import Bools, Choice, Ints
from planners.placement.search import rules
from planners.placement.search.graph import BARRED, Graph, begins_of, counting, tightened
from planners.placement.search.rules import Step

Rule = TypeVar("Rule", bound=Callable[..., object])


class Reduced(NamedTuple):
    """A reduced graph, and the steps that led to it."""

    graph: Graph
    steps: tuple[Step, ...] = ()

    def lifted(self, choice: Choice) -> Choice:
        """Return the choice of the original graph for a choice of the reduced one."""
        for step in reversed(self.steps):
            choice = step.states[step.at + choice[step.into]]
        return choice


def reduced(graph: Graph, is_compiled: bool = True) -> Reduced:
    """Apply all rules; raises InfeasibleDecision if they show that no choice is valid."""
    return Reduction(graph, is_compiled).run()


class Reduction:
    """A graph that becomes smaller in steps.

    Attributes:
        is_compiled: whether the rules run compiled or in Python, with equal results.
    """

    def __init__(self, graph: Graph, is_compiled: bool = True) -> None:
        self.graph, self.is_compiled = graph, is_compiled
        self.steps: list[Step] = []

    def run(self) -> Reduced:
        """Apply the rules until none applies; dominance waits for the others: it takes longest."""
        while self._drop_inconsistent() or self._merge() or self._drop_dominated():
            pass
        return Reduced(self.graph, tuple(self.steps))

    def _loop(self, rule: Rule) -> Rule:
        return rule if self.is_compiled else getattr(rule, "py_func", rule)

    def _drop_inconsistent(self) -> bool:
        alive = (self.graph.cost < BARRED) & _with_room(self.graph)
        self._loop(rules.mark_inconsistent)(self.graph, alive)
        return self._keep(alive)

    def _drop_dominated(self) -> bool:
        alive = np.ones(len(self.graph.cost), dtype=np.bool_)
        self._loop(rules.mark_dominated)(self.graph, alive)
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
        self._become(step, counts, graph.cost, is_live)
        return True

    def _merge(self) -> bool:
        graph, cost, widths = self.graph, self.graph.cost.copy(), self.graph.widths
        is_live = self._loop(rules.separate)(graph, cost)
        # 1. Nodes that follow from a neighbour become a part of it.
        degree = np.bincount(graph.near[np.repeat(is_live, 2)], minlength=graph.nodes)
        followed = np.empty(graph.message[-1], dtype=np.int64)
        by = self._loop(rules.follow)(graph, cost, is_live, degree == 1, followed)
        into = np.arange(graph.nodes)
        into[by >= 0] = graph.near[by[by >= 0]]
        # 2. Nodes without a choice become a part of one with many states.
        is_fixed = (by < 0) & (widths == 1) & (degree == 0)
        home = into[np.argmax(widths)]
        is_fixed[home] = False
        into[is_fixed] = home
        is_kept = into == np.arange(graph.nodes)
        if is_live.all() and is_kept.all():
            return False
        lengths = widths[into]
        states = np.where(np.repeat(is_fixed, lengths), 0, counting(lengths))
        merged = np.repeat(by >= 0, lengths)
        states[merged] = followed[np.repeat(graph.message[by], lengths)[merged] + states[merged]]
        number = np.cumsum(is_kept) - 1
        step = Step(number[into], begins_of(lengths)[:-1], states)
        self._become(step, widths[is_kept], cost, is_live)
        return True

    def _become(self, step: Step, widths: Ints, cost: Ints, is_live: Bools) -> None:
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
        # 3. Blocks of memory.
        lengths, _, old_states = self._states(step, graph.owner, widths)
        new = graph._replace(
            first=first,
            cost=costs,
            tail=tail,
            head=head,
            offset=offset,
            pairs=np.zeros(offset[-1], dtype=np.int64),
            owner=step.into[graph.owner],
            block=begins_of(lengths)[:-1],
            usage=graph.usage[np.repeat(graph.block, lengths) + old_states],
        )
        self._loop(rules.add_matrices)(graph, is_live, step, new, target)
        self.graph = tightened(new)
        self.steps.append(step)

    @staticmethod
    def _states(step: Step, nodes: Ints, widths: Ints) -> tuple[Ints, Ints, Ints]:
        """Return for old nodes the number of new states, and these with their old states."""
        lengths = widths[step.into[nodes]]
        local = counting(lengths)
        return lengths, local, step.states[np.repeat(step.at[nodes], lengths) + local]


def _with_room(graph: Graph) -> Bools:
    """Return whether each state fits into memory beside the least bytes of all other nodes."""
    intervals = np.stack([graph.begin, graph.end], axis=1).ravel()
    room = np.minimum.reduceat(np.append(graph.capacity, 0), intervals)[::2]
    states, usage, block = graph.bytes_of_states()
    has_room = np.ones(len(graph.cost), dtype=np.bool_)
    has_room[states[usage > room[block]]] = False
    return has_room
