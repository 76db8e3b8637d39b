"""The data classes that a family declares."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from harness.contract.abilities.plans import FindRemedies
from harness.model.cell import RankTable

P = TypeVar("P")
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Counter:
    """A deterministic count of work done in one call.

    `sufficient` is the count that one call needs: a number, or the name of another counter; None if
    it is not known. All work beyond it is repeated work.
    """

    name: str
    meaning: str
    sufficient: int | str | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload's line in `shardbench list workloads`."""

    name: str
    summary: str
    source: str


@dataclass(frozen=True, slots=True)
class Study:
    """A problem of the family's suite, and the variants to run on it.

    `against` names the variant to compare the others with; None means the family's reference. The
    default report leaves out `large` studies. Variants in `counted` are checked and their work is
    counted, but they are not timed.
    """

    problem: str
    variants: tuple[str, ...]
    purpose: str
    against: str | None = None
    large: bool = False
    counted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Moving(Generic[P, D]):
    """Functions for `shardbench plan --from`, which limits the moves from a deployed decision.

    Attributes:
        within: returns the problem with a limit on moves from the decision in a file. It takes the
            GiB that may move, perhaps infinite, and the ranks of that decision that no longer
            exist. Raises UsageError if the file contains no decision on the problem.
        moved: returns the GiB that a decision moves.
        front: yields decisions in order of the moved GiB, each better than the previous one, with
            the problem in which no more than that may move.
        near: returns the problem with unlimited moves from a decision; None if it is too large to
            find a front within seconds.
    """

    within: Callable[[P, Path, float, Collection[int]], P]
    moved: Callable[[P, D], float]
    front: Callable[[P], Iterator[tuple[P, D]]]
    near: Callable[[P, D], P | None] = lambda problem, decision: None


@dataclass(frozen=True, slots=True)
class Planning(Generic[P, D]):
    """A family's settings and functions for `shardbench plan`.

    Attributes:
        variant: the default variant to plan with.
        document: returns a decision as plain JSON types, ready to be deployed.
        ranks: returns a decision's figures by rank, such as memory and time.
        limited: returns the problem with a limit in seconds on the search; None if no variant can
            be stopped early.
        moving: functions to limit moves from a deployed decision; None if moves are not counted.
        remedies: searches for changes of a problem without a decision that make one possible.
        baseline: names the planner whose decision a problem has today, and the variant that decides
            as it does; None if the family has no such planner.
    """

    variant: str
    document: Callable[[P, D], Mapping[str, Any]]
    ranks: Callable[[P, D], RankTable]
    limited: Callable[[P, float], P] | None = None
    moving: Moving[P, D] | None = None
    remedies: FindRemedies[P, D] | None = None
    baseline: Callable[[P], tuple[str, str]] | None = None
