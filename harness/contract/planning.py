"""The types for planning, for explaining decisions, and for remedies of problems without one."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import Struct

from harness.model.cell import RankTable

P = TypeVar("P")
D = TypeVar("D")

Value = str | float | None
"""A field of a table: a number is written with four digits, None as a dash."""


class Section(Struct, frozen=True):
    """A table with a title, and remarks below it; numbers are right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    remarks: tuple[str, ...] = ()


class Question(Struct, Generic[D], frozen=True):
    """A question about a decision.

    Attributes:
        rank: the rank to explain; None means the heaviest rank.
        top: the number of items to show in detail, at least 1.
        other: the name of a second variant to compare with, or an empty string.
        other_decision: the second variant's decision; None without a second variant.
        table: the table to explain; empty for the whole decision.
    """

    rank: int | None = None
    top: int = 5
    other: str = ""
    other_decision: D | None = None
    table: str = ""


class Explanation(Struct, frozen=True):
    """An explanation: sentences, then tables; `document` has the same content as JSON types."""

    sentences: tuple[str, ...]
    sections: tuple[Section, ...]
    document: Mapping[str, Any]


Explaining = Callable[[P, D, Question[D]], Explanation]
"""How a family explains a decision; raises UsageError for an unknown rank or table."""


class Remedy(Struct, Generic[P, D], frozen=True):
    """A change of a problem, with a decision on the changed problem.

    Attributes:
        name: the quantity that changes, such as `HBM per GPU`.
        unit: its unit.
        now: its present value.
        sufficient: a value that is enough, as `decision` shows.
        proven: the nearest value to `now` that is not proven to be insufficient.
        changes: a sentence for each thing to change.
        rating: the decision's first quality.
        problem: the changed problem.
        decision: a decision on it.
        sentence: the changes, with the proof that less is not enough, without a full stop.
    """

    name: str
    unit: str
    now: float
    sufficient: float
    proven: float
    changes: tuple[str, ...]
    rating: float
    problem: P
    decision: D
    sentence: str

    @property
    def gap(self) -> float:
        """The distance between the decision and the proof (0.01 is 1 %)."""
        return abs(self.sufficient - self.proven) / max(min(self.sufficient, self.proven), 1e-9)


class Remedies(Struct, Generic[P, D], frozen=True):
    """The remedies for a problem, those first that users can apply themselves.

    `causes` are sentences on parts that fit nowhere, `findings` on changes that are not enough or
    were not tried.
    """

    causes: tuple[str, ...]
    findings: tuple[str, ...]
    remedies: tuple[Remedy[P, D], ...]


class Moving(Struct, Generic[P, D], frozen=True):
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
        remedies: searches for changes of a problem without a decision that make one possible, for
            a number of seconds.
        baseline: names the planner whose decision a problem has today, and the variant that decides
            as it does; None if the family has no such planner.
        ruler: says in a sentence by which estimate a decision with these qualities is judged.
    """

    variant: str
    document: Callable[[P, D], Mapping[str, Any]]
    ranks: Callable[[P, D], RankTable]
    limited: Callable[[P, float], P] | None = None
    moving: Moving[P, D] | None = None
    remedies: Callable[[P, float], Remedies[P, D]] | None = None
    baseline: Callable[[P], tuple[str, str]] | None = None
    ruler: Callable[[P, Mapping[str, float]], str] | None = None
