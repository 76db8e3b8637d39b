"""Integer programmes of small graphs, solved by HiGHS, with rows of memory only where they bind.

A variable for each state and each allowed pair of states. The programme begins without limits on
memory; rows for the moments with most bytes too many are added until a solution fits.
"""

from itertools import pairwise
from time import monotonic

import highspy
import numpy as np

from planners.highs import Solver, is_solved
from planners.placement.problem import Choice, Ints
from planners.placement.search.dual import Floats
from planners.placement.search.graph import BARRED, Graph, counting
from planners.placement.search.halves import Halves

_PEAKS = 12
_LARGEST_COST = 1e5


class Programme:
    """The programme of a graph: its linear relaxation with prices, and its integer solutions.

    Attributes:
        messages, prices: those of the last relaxation, as in `dual`.
    """

    def __init__(self, graph: Graph, halves: Halves, about: float) -> None:
        """Build the programme; costs are divided such that `about`, a known cost, is usual."""
        self.graph = graph
        self.halves = halves
        self._scale = max(about, 1.0) / _LARGEST_COST
        self._moments: list[int] = []
        self._limits = np.maximum(graph.capacity, 1)  # rows are divided by them
        self._highs = Solver()
        self._highs.setOptionValue("threads", 1)
        self._highs.setOptionValue("mip_rel_gap", 1e-7)
        self._highs.passModel(self._model())
        self.messages = np.zeros(halves.message[-1])
        self.prices = np.zeros(len(graph.capacity))

    def _model(self) -> highspy.HighsLp:
        graph = self.graph
        states, widths = len(graph.cost), np.diff(graph.first)
        # 1. The columns: states, then allowed pairs.
        sizes = np.diff(graph.offset)
        edge = np.repeat(np.arange(len(graph.tail)), sizes)
        row, column = np.divmod(counting(sizes), widths[graph.head][edge])
        allowed = np.flatnonzero(graph.pairs < BARRED)
        edge, row, column = edge[allowed], row[allowed], column[allowed]
        # 2. The rows: a state for each node; for each state of an edge's ends, its pairs add up to
        # the state. The latter have the numbers of messages.
        begins = self.halves.message + graph.nodes
        ends = np.stack([graph.tail, graph.head], axis=1).ravel()
        lengths = widths[ends]
        of_message = graph.first[:-1][np.repeat(ends, lengths)] + counting(lengths)
        rows = graph.nodes + len(of_message)
        in_state = [
            np.arange(states),
            np.repeat(np.arange(graph.nodes), widths),
            np.ones(states),
        ]
        in_message = [of_message, graph.nodes + np.arange(len(of_message)), -np.ones(rows)]
        in_message[2] = in_message[2][: len(of_message)]
        pairs = states + np.arange(len(allowed))
        in_tail = [pairs, begins[2 * edge] + row, np.ones(len(allowed))]
        in_head = [pairs, begins[2 * edge + 1] + column, np.ones(len(allowed))]
        columns, places, values = map(
            np.concatenate, zip(in_state, in_message, in_tail, in_head, strict=True)
        )
        order = np.argsort(columns, kind="stable")
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = states + len(allowed), rows
        model.col_cost_ = np.concatenate([graph.cost, graph.pairs[allowed]]) / self._scale
        model.col_lower_ = np.zeros(model.num_col_)
        model.col_upper_ = np.ones(model.num_col_)
        right = np.concatenate([np.ones(graph.nodes), np.zeros(len(of_message))])
        model.row_lower_, model.row_upper_ = right, right
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_ = np.searchsorted(columns[order], np.arange(model.num_col_ + 1))
        model.a_matrix_.index_, model.a_matrix_.value_ = places[order], values[order]
        return model

    def relax(self, deadline: float) -> Floats | None:
        """Solve the relaxation, keep its prices; return the states' fractions, None if too late."""
        fractions = None
        while self._run(deadline):
            solution = self._highs.getSolution()
            fractions = np.array(solution.col_value)[: len(self.graph.cost)]
            duals = -np.array(solution.row_dual) * self._scale
            before = self.graph.nodes + len(self.messages)
            self.messages = duals[self.graph.nodes : before]
            self.prices[self._moments] = np.maximum(
                duals[before:] / self._limits[self._moments], 0.0
            )
            if not self._add_rows(fractions):
                break
        return fractions

    def solve(self, deadline: float, start: Choice | None) -> Choice | None:
        """Return the best integer solution that fits and was found in time, None if none was."""
        states = len(self.graph.cost)
        for state in range(states):
            self._highs.changeColIntegrality(state, highspy.HighsVarType.kInteger)
        best, least = start, 2**62 if start is None else self.graph.cost_of(start)
        while monotonic() < deadline:
            if best is not None:
                self._begin_at(best)
            self._run(deadline)
            values = np.array(self._highs.getSolution().col_value)
            if len(values) < states or self._highs.getInfo().objective_function_value > 1e29:
                break
            first = self.graph.first
            choice = np.array([np.argmax(values[begin:end]) for begin, end in pairwise(first)])
            fractions = np.zeros(states)
            fractions[first[:-1] + choice] = 1.0
            if self._add_rows(fractions):
                continue
            # A solution may exceed a row by the solver's tolerance, so it is checked in integers.
            fits = (self.graph.used_by(choice) <= self.graph.capacity).all()
            if fits and self.graph.cost_of(choice) < least:
                best, least = choice, self.graph.cost_of(choice)
            break
        return best

    def _begin_at(self, choice: Choice) -> None:
        states = self.graph.first[:-1] + choice
        values = np.zeros(len(self.graph.cost))
        values[states] = 1.0
        index = np.arange(len(values), dtype=np.int32)
        self._highs.setSolution(len(values), index, values)

    def _run(self, deadline: float) -> bool:
        """Solve until the deadline; return whether the solution is optimal."""
        return monotonic() < deadline and is_solved(self._highs, deadline - monotonic())

    def _add_rows(self, fractions: Floats) -> bool:
        """Add the worst moments that are far from each other; return whether there are any."""
        graph = self.graph
        if not len(graph.capacity):
            return False
        widths = np.diff(graph.first)[graph.owner]
        at = np.repeat(graph.first[graph.owner], widths) + counting(widths)
        taken = graph.usage[np.repeat(graph.block, widths) + counting(widths)] * fractions[at]
        begins = np.cumsum(widths) - widths
        used = graph.spread(np.add.reduceat(taken, begins))
        excess = (used - graph.capacity) / self._limits
        added = False
        for _ in range(_PEAKS):
            moment = int(np.argmax(excess))
            if excess[moment] <= 1e-9 or moment in self._moments:
                break
            self._add_row(moment)
            near = len(excess) // 200
            excess[max(0, moment - near) : moment + near + 1] = 0.0
            added = True
        return added

    def _add_row(self, moment: int) -> None:
        graph = self.graph
        bytes_of: dict[int, int] = {}
        for b in np.flatnonzero((graph.begin <= moment) & (moment < graph.end)).tolist():
            node = graph.owner[b]
            for s in range(graph.first[node + 1] - graph.first[node]):
                state = int(graph.first[node] + s)
                bytes_of[state] = bytes_of.get(state, 0) + int(graph.usage[graph.block[b] + s])
        index: Ints = np.array(list(bytes_of), dtype=np.int32)
        limit = self._limits[moment]
        shares = np.array(list(bytes_of.values())) / limit
        capacity = graph.capacity[moment] / limit
        self._highs.addRow(-highspy.kHighsInf, capacity, len(index), index, shares)
        self._moments.append(moment)
