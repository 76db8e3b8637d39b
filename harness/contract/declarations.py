"""The plain records that a family declares: counters, workloads, studies, plans."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from harness.model.cell import Goal, Measure, RankTable
from harness.model.errors import RegistryError, UsageError
from harness.model.ids import ProblemId
from harness.model.overview import OverviewRow
from harness.model.quality import Quality

OTHERS = "others"
"""The variant that a goal names to be set against all others of its problem."""

P = TypeVar("P")
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Counter:
    """A deterministic count of work done in one call.

    `sufficient` is a count that suffices: a number, or the name of the counter with that number;
    None where it is not known. All work beyond it is repeated work.
    """

    name: str
    meaning: str
    sufficient: int | str | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """What `shardbench list workloads` says about a workload."""

    name: str
    summary: str
    source: str


@dataclass(frozen=True, slots=True)
class Study:
    """A problem of the family's suite, and the variants to run on it.

    `against` names the variant that the others are compared with there, the family's reference
    where it is None. A `large` study takes no part in the default report.
    """

    problem: str
    variants: tuple[str, ...]
    purpose: str
    against: str | None = None
    large: bool = False


def check_qualities(family: str, qualities: Sequence[Quality]) -> None:
    """Raise RegistryError where a bound is of no other quality, or none is better."""
    for quality in qualities:
        if quality.better not in ("lower", "higher"):
            raise RegistryError(f"Quality '{quality.name}' must be better lower or higher.")
        others = {each.name for each in qualities if each is not quality}
        if quality.bounds and quality.bounds not in others:
            raise RegistryError(
                f"Quality '{quality.name}' of family '{family}' bounds '{quality.bounds}', which "
                "is no other quality of it."
            )


def check_counters(family: str, counters: Sequence[Counter]) -> None:
    """Raise RegistryError where the sufficient count is a counter that the family lacks."""
    names = {counter.name for counter in counters}
    for counter in counters:
        if isinstance(counter.sufficient, str) and counter.sufficient not in names:
            raise RegistryError(
                f"For counter '{counter.name}' of family '{family}', '{counter.sufficient}' is "
                "sufficient, which is no counter of it."
            )


def check_studies(family: str, reference: str, studies: Iterable[Study]) -> None:
    """Raise RegistryError where one problem is studied against two variants.

    A cell's id does not say what it is compared with, so the cells of the two would be mixed up.
    """
    against: dict[ProblemId, str] = {}
    for study in studies:
        try:
            problem = ProblemId.parse(study.problem)
        except UsageError as error:
            raise RegistryError(f"A study of family '{family}' is malformed: {error}") from None
        other = study.against or reference
        if against.setdefault(problem, other) != other:
            raise RegistryError(
                f"Family '{family}' studies '{problem}' against '{against[problem]}' and against "
                f"'{other}'; a problem can be studied against one variant only."
            )


@dataclass(frozen=True, slots=True)
class Moving(Generic[P, D]):
    """How `shardbench plan --from` stays near a decision that is carried out already.

    Attributes:
        within: the problem of staying near the decision in a file, of which so many GiB may move,
            or any amount where that is infinite, and of which these ranks went away; raises
            UsageError where the file holds no decision on it.
        moved: GiB that a decision moves.
        front: decisions that move more and more, each better than the one before, with the
            problems of moving no more than they do.
        near: the problem of moving any amount of a decision on it, None where it is too large for
            a front to be a matter of seconds.
    """

    within: Callable[[P, Path, float, Collection[int]], P]
    moved: Callable[[P, D], float]
    front: Callable[[P], Iterator[tuple[P, D]]]
    near: Callable[[P, D], P | None] = lambda problem, decision: None


@dataclass(frozen=True, slots=True)
class Planning(Generic[P, D]):
    """How `shardbench plan` plans with a family.

    Attributes:
        variant: the one that plans unless another is asked for.
        document: a decision as plain JSON types, for whoever carries it out.
        ranks: what each rank gets.
        limited: the problem with a limit in seconds on the search, for variants that can be
            stopped; None where none of them can.
        moving: how little of another decision can move; None where that is not counted.
    """

    variant: str
    document: Callable[[P, D], Mapping[str, Any]]
    ranks: Callable[[P, D], RankTable]
    limited: Callable[[P, float], P] | None = None
    moving: Moving[P, D] | None = None


def check_goals(
    family: str, goals: Iterable[Goal], variants: Collection[str], qualities: Sequence[Quality]
) -> None:
    """Raise RegistryError where a goal names what its family does not have."""
    for goal in goals:
        whose = f"Goal '{goal.text}' of family '{family}'"
        allowed = get_args(Measure)
        if goal.measure not in allowed:
            raise RegistryError(
                f"{whose} has measure '{goal.measure}'; allowed are: {', '.join(allowed)}."
            )
        named = {goal.variant, goal.against} - {""}
        if goal.measure == "quality" and goal.against == OTHERS:
            named.remove(OTHERS)
        for name in sorted(named.difference(variants)):
            raise RegistryError(f"{whose} names variant '{name}', which is not registered.")
        lower = {quality.name for quality in qualities if quality.better == "lower"}
        if (goal.measure == "quality") != bool(goal.quality) or goal.quality not in {"", *lower}:
            raise RegistryError(
                f"{whose} must name a quality that is better lower where that is its measure, and "
                f"only there, not '{goal.quality}'."
            )
        try:
            ProblemId.parse(goal.problem)
        except UsageError as error:
            raise RegistryError(f"{whose} is malformed: {error}") from None


def check_overview(
    family: str,
    rows: Iterable[OverviewRow],
    variants: Collection[str],
    counters: Sequence[Counter],
) -> None:
    """Raise RegistryError where a row of the overview names what its family does not have."""
    counted = {counter.name for counter in counters}
    for row in rows:
        whose = f"Overview row '{row.system}' of family '{family}'"
        named = {row.today, row.ours, row.published, row.before, row.best} - {""}
        for name in sorted(named.difference(variants)):
            raise RegistryError(f"{whose} names variant '{name}', which is not registered.")
        if row.counter and row.counter not in counted:
            raise RegistryError(f"{whose} names counter '{row.counter}', which it does not have.")
        for problem in row.problems:
            try:
                ProblemId.parse(problem)
            except UsageError as error:
                raise RegistryError(f"{whose} is malformed: {error}") from None
