"""AutoParallel's integer programme as a problem of placement, and the way back.

AutoParallel has a 0/1 variable for each (op, argument, output placement, input placement). Here a
node is an op, and a state is its output placement. An argument is an edge from the op that produces
it; the flow constraints of the programme say which op that is. All other constraints forbid states
or pairs of states. Repeated blocks share variables, whose costs count for all of them.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from harness.contract import ShardbenchError
from planners.placement.problem import FORBIDDEN, Choice, Ints, PlacementProblem

_UNITS = 1e6  # costs are rounded to whole millionths of AutoParallel's unit
_BYTES = 2**30  # the same for shares of a parameter's size

Key = tuple[int, int, int, int]  # node, argument, output, input
Argument = tuple[int, int]


class Unknown(ShardbenchError):
    """A programme has a constraint that a problem of placement cannot express."""


class Side(NamedTuple):
    """A node in one of its states."""

    node: int
    state: int


class ShardingProgramme:
    """The programme of a `ShardingOptimizer`, whose objective is set.

    Attributes:
        costs: by argument, the cost of each output and input placement that is allowed.
        producers: by argument, the nodes that produce it; it may have none.
        equal: pairs of sides that hold both or neither.
    """

    def __init__(self, optimizer: Any) -> None:
        """Read the variables and constraints; raises Unknown for a constraint of another kind."""
        self.costs: dict[Argument, dict[tuple[int, int], float]] = defaultdict(dict)
        self.inputs: dict[Argument, set[int]] = defaultdict(set)
        self.widths: dict[int, int] = defaultdict(int)
        self.variables: dict[Key, Any] = {}
        keys: dict[int, Key] = {}  # by a variable's id, since PuLP overloads ==
        for key, decision in optimizer.decision_vars.items():
            node, argument, out, into = key
            variable = self.variables[key] = decision.var
            keys[id(variable)] = key
            costs = self.costs[node, argument]
            if variable.upBound:
                costs[out, into] = optimizer.prob.objective.get(variable, 0.0)
            self.inputs[node, argument].add(into)
            self.widths[node] = max(self.widths[node], out + 1)
        self.producers: dict[Argument, set[int]] = defaultdict(set)
        self.equal: list[tuple[Side, Side]] = []
        self.usage: dict[Side, float] = {}
        self.limit = 0.0
        for name, constraint in optimizer.prob.constraints.items():
            if constraint.sense > 0:
                continue  # the least use of memory is checked in the solution
            terms = {keys[id(v)]: share for v, share in constraint.items() if share}
            self._read(name, terms, constraint.sense, -constraint.constant)

    def _read(self, name: str, terms: dict[Key, float], sense: int, right: float) -> None:
        more = [key for key, share in terms.items() if share == 1]
        less = [key for key, share in terms.items() if share == -1]
        if sense < 0:  # the use of memory
            for key, share in terms.items():
                self.usage[self._side(name, [key])] = share
            self.limit = right
        elif len(more) + len(less) < len(terms) or right not in (0, 1):
            raise Unknown(f"The constraint {name} has other factors than 1 and -1.")
        elif name.startswith("output_input_consistent"):
            if terms:
                produced, consumed = more[0], less[0]
                self.producers[consumed[:2]].add(produced[0])
        elif name.startswith("same_across_args"):
            pass  # an op has one state
        elif right == 1:  # one of these, and no other one of the argument
            arguments = {key[:2] for key in more}
            if less or len(arguments) > 1:
                raise Unknown(f"The constraint {name} is over several arguments.")
            allowed = {key[2:] for key in more}
            costs = self.costs[arguments.pop()]
            for pair in costs.keys() - allowed:
                del costs[pair]
        elif not less:
            for node, argument, out, into in more:
                self.costs[node, argument].pop((out, into), None)
        elif more:
            self.equal.append((self._side(name, more), self._side(name, less)))

    def _side(self, name: str, keys: list[Key]) -> Side:
        """Return the state that variables stand for together."""
        sides = {(node, argument, out) for node, argument, out, _ in keys}
        node, argument, out = next(iter(sides))
        if len(sides) > 1 or {key[3] for key in keys} != self.inputs[node, argument]:
            raise Unknown(f"The constraint {name} is over a part of a placement.")
        return Side(node, out)

    def problem(self) -> PlacementProblem:
        """Return the problem; its costs are in millionths."""
        nodes = {node: number for number, node in enumerate(self.widths)}
        cost = {node: np.zeros(width, dtype=np.int64) for node, width in self.widths.items()}
        edges: list[tuple[int, int, Ints]] = []
        for (node, argument), costs in self.costs.items():
            producers = sorted(self.producers[node, argument])
            width = max(self.inputs[node, argument]) + 1
            matrix = np.full((width, self.widths[node]), FORBIDDEN)  # by input, by output
            for (out, into), value in costs.items():
                matrix[into, out] = round(value * _UNITS)
            if not producers:
                cost[node] = _sum(cost[node], matrix.min(axis=0))
            elif producers == [node]:
                cost[node] = _sum(cost[node], np.diagonal(matrix))
            else:
                edges.append((producers[0], node, matrix))
            for other in producers[1:]:
                same = np.full((width, width), FORBIDDEN)
                np.fill_diagonal(same, 0)
                edges.append((producers[0], other, same))
        for a, b in self.equal:
            shape = self.widths[a.node], self.widths[b.node]
            is_other = (np.arange(shape[0]) == a.state)[:, None] != (np.arange(shape[1]) == b.state)
            matrix = np.where(is_other, FORBIDDEN, 0)
            if a.node == b.node:
                cost[a.node] = _sum(cost[a.node], np.diagonal(matrix))
            else:
                edges.append((a.node, b.node, matrix))
        usage = [
            round(self.usage.get(Side(node, state), 0.0) * _BYTES)
            for node, width in self.widths.items()
            for state in range(width)
        ]
        sizes = [matrix.size for _, _, matrix in edges]
        return PlacementProblem(
            name="autoparallel",
            first=_begins(self.widths.values()),
            cost=np.concatenate(list(cost.values())),
            usage=np.array(usage, dtype=np.int64),
            start=np.zeros(len(nodes), dtype=np.int64),
            end=np.ones(len(nodes), dtype=np.int64),
            tail=np.array([nodes[tail] for tail, _, _ in edges], dtype=np.int64),
            head=np.array([nodes[head] for _, head, _ in edges], dtype=np.int64),
            offset=_begins(sizes),
            pairs=np.concatenate([np.zeros(0, np.int64), *(m.ravel() for _, _, m in edges)]),
            # Rounded shares may exceed the limit by one each.
            limit=int(self.limit * _BYTES) + len(nodes),
        )

    def set_values(self, choice: Choice) -> None:
        """Give every variable its value in a plan."""
        states = dict(zip(self.widths, choice.tolist(), strict=True))
        taken = set()
        for (node, argument), costs in self.costs.items():
            out = states[node]
            producers = self.producers[node, argument]
            if producers:
                taken.add((node, argument, out, states[min(producers)]))
            else:
                free = [(value, into) for (of, into), value in costs.items() if of == out]
                taken.add((node, argument, out, min(free)[1]))
        for key, variable in self.variables.items():
            variable.varValue = float(key in taken)


def _sum(a: Ints, b: Ints) -> Ints:
    total: Ints = np.minimum(a + b, FORBIDDEN)
    return total


def _begins(lengths: Iterable[int]) -> Ints:
    return np.cumsum([0, *lengths], dtype=np.int64)
