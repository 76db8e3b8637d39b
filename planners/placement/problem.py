"""Problems of the placement family, and the exact evaluation of their decisions.

A node (an op of a model) is in one of several states (shardings). States cost time and memory, and
a pair of states of two connected nodes costs a conversion. The evaluation shares no code with the
searches, and sums in Python's integers, which cannot overflow.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Choice = Ints
"""The state of each node, counted from 0 in each node."""

FORBIDDEN = 10**18
"""The cost that files give to a state or a pair which must not be chosen."""


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Nodes with states, edges with a matrix of costs, and a limit on memory at every moment.

    Attributes:
        name: the name of the problem, such as `asplos-2025-iopddl-K`.
        first: shape (nodes + 1,); the states of node i are first[i] to before first[i + 1].
        cost: the cost of each state.
        usage: the bytes of each state, while its node is alive.
        start, end: the half-open interval of time in which a node is alive; empty means no memory.
        tail, head: the two nodes of each edge; several edges may have the same nodes.
        offset: shape (edges + 1,); where the matrix of each edge begins in `pairs`.
        pairs: the matrices, by state of the tail, then by state of the head.
        limit: the bytes that all live nodes together may use.
        seconds: how long a search may take.
        known: figures that hold for all decisions, such as the proven bound.
    """

    name: str
    first: Ints
    cost: Ints
    usage: Ints
    start: Ints
    end: Ints
    tail: Ints
    head: Ints
    offset: Ints
    pairs: Ints
    limit: int
    seconds: float = 60.0
    known: dict[str, float] = field(default_factory=dict)

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.start)

    def facts(self) -> dict[str, float | str]:
        """Return facts for reports; `nodes`, the first one, is the problem's size."""
        return {
            "nodes": self.nodes,
            "edges": len(self.tail),
            "states": len(self.cost),
            "limit GiB": f"{self.limit / 2**30:.4g}",
        }

    def limited(self, seconds: float) -> "PlacementProblem":
        """Return the problem with another limit on the search."""
        return replace(self, seconds=seconds, known=dict(self.known))

    @property
    def widths(self) -> Ints:
        """The number of states of each node."""
        return np.diff(self.first)


@dataclass(frozen=True, eq=False)
class Plan:
    """A decision: a choice, and the bound that its search proved for all choices (0: none)."""

    choice: Choice
    bound: int = 0


def chosen_pairs(problem: PlacementProblem, choice: Choice) -> Ints:
    """Return the cost of each edge."""
    width = problem.widths[problem.head]
    at = problem.offset[:-1] + choice[problem.tail] * width + choice[problem.head]
    return problem.pairs[at]


def cost_of(problem: PlacementProblem, choice: Choice) -> int:
    """Return the exact cost of a choice; a forbidden one counts as any other number."""
    states = problem.cost[problem.first[:-1] + choice]
    return int(sum(states.tolist()) + sum(chosen_pairs(problem, choice).tolist()))


def memory_of(problem: PlacementProblem, choice: Choice) -> tuple[Ints, Ints]:
    """Return the times at which memory changes, and the bytes in use from each time on."""
    usage = problem.usage[problem.first[:-1] + choice]
    alive = problem.end > problem.start
    usage, start, end = usage[alive], problem.start[alive], problem.end[alive]
    times, at = np.unique(np.concatenate([start, end]), return_inverse=True)
    change = np.zeros(len(times), dtype=np.int64)
    np.add.at(change, at[: len(start)], usage)
    np.subtract.at(change, at[len(start) :], usage)
    return times, np.cumsum(change)


def peak_of(problem: PlacementProblem, choice: Choice) -> int:
    """Return the largest number of bytes in use at a time."""
    return int(memory_of(problem, choice)[1].max(initial=0))
