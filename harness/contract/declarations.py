"""The data classes that a family declares, and checks of the names in them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from harness.contract.abilities.remedies import FindRemedies
from harness.model.cell import RankTable
from harness.model.errors import RegistryError, UsageError
from harness.model.ids import ProblemId
from harness.model.overview import Goal, Measure, OverviewRow
from harness.model.quality import Quality

OTHERS = "others"
"""Named by a goal instead of a variant: all other variants of its problem."""

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


def check_qualities(family: str, qualities: Sequence[Quality]) -> None:
    """Raise RegistryError without a quality, or for an unknown direction (`better`) or bound."""
    if not qualities:
        raise RegistryError(f"Family '{family}' needs at least one quality to rate decisions by.")
    for quality in qualities:
        if quality.better not in ("lower", "higher"):
            raise RegistryError(f"Quality '{quality.name}' must be better lower or higher.")
        others = {other.name for other in qualities if other is not quality}
        if quality.bounds and quality.bounds not in others:
            raise RegistryError(
                f"Quality '{quality.name}' of family '{family}' bounds '{quality.bounds}', which "
                "is no other quality of it."
            )


def check_counters(family: str, counters: Sequence[Counter]) -> None:
    """Raise RegistryError if a `sufficient` names a counter that the family does not define."""
    names = {counter.name for counter in counters}
    for counter in counters:
        if isinstance(counter.sufficient, str) and counter.sufficient not in names:
            raise RegistryError(
                f"For counter '{counter.name}' of family '{family}', '{counter.sufficient}' is "
                "sufficient, which is no counter of it."
            )


def check_studies(family: str, reference: str, studies: Iterable[Study]) -> None:
    """Raise RegistryError if two studies of one problem differ in the variant to compare with.

    A cell's id does not name the variant to compare with, so the two studies' cells would collide.
    """
    against: dict[ProblemId, str] = {}
    for study in studies:
        problem = _problem(study.problem, f"A study of family '{family}'")
        other = study.against or reference
        if against.setdefault(problem, other) != other:
            raise RegistryError(
                f"Family '{family}' studies '{problem}' against '{against[problem]}' and against "
                f"'{other}'; a problem can be studied against one variant only."
            )


def check_goals(
    family: str, goals: Iterable[Goal], variants: Collection[str], qualities: Sequence[Quality]
) -> None:
    """Raise RegistryError if a goal names a measure, variant or quality that does not exist."""
    lower = {quality.name for quality in qualities if quality.better == "lower"}
    for goal in goals:
        subject = f"Goal '{goal.text}' of family '{family}'"
        allowed = get_args(Measure)
        if goal.measure not in allowed:
            raise RegistryError(
                f"{subject} has measure '{goal.measure}'; allowed are: {', '.join(allowed)}."
            )
        named = {goal.variant, goal.against}
        if goal.measure == "quality":
            named.discard(OTHERS)
        _check_variants(named, variants, subject)
        if (goal.measure == "quality") != bool(goal.quality) or goal.quality not in {"", *lower}:
            raise RegistryError(
                f"{subject} must name a quality that is better lower where that is its measure, "
                f"and only there, not '{goal.quality}'."
            )
        _problem(goal.problem, subject)


def check_overview(
    family: str,
    rows: Iterable[OverviewRow],
    variants: Collection[str],
    counters: Sequence[Counter],
) -> None:
    """Raise RegistryError if an overview row names a variant or counter that does not exist."""
    counted = {counter.name for counter in counters}
    for row in rows:
        subject = f"Overview row '{row.system}' of family '{family}'"
        _check_variants(
            {row.today, row.ours, row.published, row.before, row.best, row.rated},
            variants,
            subject,
        )
        if row.counter and row.counter not in counted:
            raise RegistryError(f"{subject} names counter '{row.counter}', which it does not have.")
        for problem in row.problems:
            _problem(problem, subject)


def _check_variants(named: Collection[str], variants: Collection[str], subject: str) -> None:
    for name in sorted({*named} - {"", *variants}):
        raise RegistryError(f"{subject} names variant '{name}', which is not registered.")


def _problem(text: str, subject: str) -> ProblemId:
    try:
        return ProblemId.parse(text)
    except UsageError as error:
        raise RegistryError(f"{subject} is malformed: {error}") from None
