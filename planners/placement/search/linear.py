"""Integer programmes of small graphs, solved by HiGHS, with rows of memory only where they bind.

A variable for each state and each allowed pair of states. The programme begins without limits on
memory; rows for the moments with most bytes too many are added until a solution fits.
"""

from itertools import pairwise
from time import monotonic
from typing import NamedTuple

import highspy
import numpy as np

from planners.highs import Solver, is_solved
from planners.placement.problem import Choice, Ints
from planners.placement.search.dual import Floats, bounds
from planners.placement.search.graph import BARRED, Graph, counting

_PEAKS = 12
_LARGEST_COST = 1e5


def rounded(graph: Graph, fractions: Floats) -> Choice:
    """Return the state with the largest fraction of each node."""
    return np.array([np.argmax(fractions[begin:end]) for begin, end in pairwise(graph.first)])


class Relaxation(NamedTuple):
    """What a linear relaxation says of a graph; of one that was not solved, the bounds are trivial.

    Attributes:
        bound: a proven bound on the cost of every choice.
        of_states: for each state, a proven bound on the cost of the choices that take it.
        fractions: the share of each state in the solution, None if it was not solved in time.
    """

    bound: int
    of_states: Ints
    fractions: Floats | None


class Programme:
    """The programme of a graph: its linear relaxation, and its integer solutions."""

    def __init__(self, graph: Graph, about: float) -> None:
        """Build the programme; costs are divided such that `about`, a known cost, is usual."""
        self.graph = graph
        self._scale = max(about, 1.0) / _LARGEST_COST
        self._moments: list[int] = []
        self._limits = np.maximum(graph.capacity, 1)  # rows are divided by them
        self._highs = Solver()
        self._highs.setOptionValue("mip_rel_gap", 1e-7)
        self._highs.passModel(self._model())

    def _model(self) -> highspy.HighsLp:
        graph = self.graph
        states, widths = len(graph.cost), graph.widths
        # 1. The columns: states, then allowed pairs.
        sizes = np.diff(graph.offset)
        edge = np.repeat(np.arange(len(graph.tail)), sizes)
        row, column = np.divmod(counting(sizes), widths[graph.head][edge])
        allowed = np.flatnonzero(graph.pairs < BARRED)
        edge, row, column = edge[allowed], row[allowed], column[allowed]
        # 2. The rows: a state for each node; for each state of an edge's ends, its pairs add up to
        # the state. The latter have the numbers of messages.
        begins = graph.message + graph.nodes
        ends = np.stack([graph.tail, graph.head], axis=1).ravel()
        lengths = widths[ends]
        of_message = graph.first[:-1][np.repeat(ends, lengths)] + counting(lengths)
        pairs = states + np.arange(len(allowed))
        of_pairs = np.ones(len(allowed))
        columns = np.concatenate([np.arange(states), of_message, pairs, pairs])
        places = np.concatenate(
            [
                np.repeat(np.arange(graph.nodes), widths),
                graph.nodes + np.arange(len(of_message)),
                begins[2 * edge] + row,
                begins[2 * edge + 1] + column,
            ]
        )
        values = np.concatenate([np.ones(states), -np.ones(len(of_message)), of_pairs, of_pairs])
        order = np.argsort(columns, kind="stable")
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = states + len(allowed), graph.nodes + len(of_message)
        costs = np.concatenate([np.where(graph.cost < BARRED, graph.cost, 0), graph.pairs[allowed]])
        model.col_cost_ = costs / self._scale
        model.col_lower_ = np.zeros(model.num_col_)
        model.col_upper_ = np.concatenate([graph.cost < BARRED, of_pairs]).astype(float)
        right = np.concatenate([np.ones(graph.nodes), np.zeros(len(of_message))])
        model.row_lower_, model.row_upper_ = right, right
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_ = np.searchsorted(columns[order], np.arange(model.num_col_ + 1))
        model.a_matrix_.index_, model.a_matrix_.value_ = places[order], values[order]
        return model

    def relax(self, deadline: float) -> Relaxation:
        """Solve the relaxation until the deadline."""
        graph, fractions = self.graph, None
        messages, prices = np.zeros(graph.message[-1]), np.zeros(len(graph.capacity))
        while self._run(deadline):
            solution = self._highs.getSolution()
            fractions = np.array(solution.col_value)[: len(graph.cost)]
            duals = -np.array(solution.row_dual) * self._scale
            _, messages, of_rows = np.split(duals, [graph.nodes, graph.nodes + len(messages)])
            prices[self._moments] = np.maximum(of_rows / self._limits[self._moments], 0.0)
            if not self._add_rows(fractions):
                break
        return Relaxation(*bounds(graph, messages, prices), fractions)

    def solve(self, deadline: float, start: Choice | None) -> Choice | None:
        """Return the best integer solution that fits and was found in time, None if none was."""
        states = len(self.graph.cost)
        for state in range(states):
            self._highs.changeColIntegrality(state, highspy.HighsVarType.kInteger)
        best, least = start, 2**62 if start is None else self.graph.cost_of(start)
        while monotonic() < deadline:
            if best is not None:
                self._highs.setSolution(
                    states, np.arange(states, dtype=np.int32), self._whole(best)
                )
            self._run(deadline)
            values = np.array(self._highs.getSolution().col_value)
            if len(values) < states or self._highs.getInfo().objective_function_value > 1e29:
                break
            choice = rounded(self.graph, values)
            if self._add_rows(self._whole(choice)):
                continue
            # A solution may exceed a row by the solver's tolerance, so it is checked in integers.
            if self.graph.fits(choice) and self.graph.cost_of(choice) < least:
                best, least = choice, self.graph.cost_of(choice)
            break
        return best

    def _whole(self, choice: Choice) -> Floats:
        """Return the fractions of states that a choice takes."""
        fractions = np.zeros(len(self.graph.cost))
        fractions[self.graph.first[:-1] + choice] = 1.0
        return fractions

    def _run(self, deadline: float) -> bool:
        """Solve until the deadline; return whether the solution is optimal."""
        return monotonic() < deadline and is_solved(self._highs, deadline - monotonic())

    def _add_rows(self, fractions: Floats) -> bool:
        """Add the worst moments that are far from each other; return whether there are any."""
        graph = self.graph
        if not len(graph.capacity):
            return False
        states, usage, block = graph.bytes_of_states()
        of_block = np.bincount(block, usage * fractions[states], len(graph.owner))
        excess = (graph.spread(of_block) - graph.capacity) / self._limits
        added = False
        for _ in range(_PEAKS):
            moment = int(np.argmax(excess))
            if excess[moment] <= 1e-9 or moment in self._moments:
                break
            is_live = ((graph.begin <= moment) & (moment < graph.end))[block]
            limit = self._limits[moment]
            shares = np.bincount(states[is_live], usage[is_live], len(graph.cost)) / limit
            index: Ints = np.flatnonzero(shares).astype(np.int32)
            capacity = graph.capacity[moment] / limit
            self._highs.addRow(-highspy.kHighsInf, capacity, len(index), index, shares[index])
            self._moments.append(moment)
            near = len(excess) // 200
            excess[max(0, moment - near) : moment + near + 1] = 0.0
            added = True
        return added
