"""What a family declares of itself in plain records: claims, qualities, counters, its suite."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from harness.errors import RegistryError, UsageError
from harness.naming import ProblemId

P = TypeVar("P")
D = TypeVar("D")

# A bound may pass its quality by this share: the two are summed up in different orders.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure published with an optimisation: `before` and `after` in `unit`, on `conditions`."""

    before: float
    after: float
    unit: str
    conditions: str = ""

    @property
    def ratio(self) -> float:
        """What is left of the cost: after / before, lower is better."""
        return self.after / self.before


@dataclass(frozen=True, slots=True)
class Quality:
    """A named figure of a decision, with its unit and which direction is better.

    `bounds` names the quality that no decision can bring beyond this one: it is a proven bound.
    A quality named `gap` is how far that one is from its bound, as a share of 1.
    """

    name: str
    unit: str
    better: str
    meaning: str
    bounds: str = ""

    def __post_init__(self) -> None:
        if self.better not in ("lower", "higher"):
            raise RegistryError(f"Quality '{self.name}' must be better lower or higher.")


@dataclass(frozen=True, slots=True)
class Counter:
    """A deterministic count of work done in one call.

    `enough` is what the count need not go beyond: a number, or the name of the counter that tells
    it; None where that is not known. What goes beyond it is work that is repeated.
    """

    name: str
    meaning: str
    enough: int | str | None = None


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
    """Raise RegistryError where a bound is of no other quality."""
    for quality in qualities:
        others = {each.name for each in qualities if each is not quality}
        if quality.bounds and quality.bounds not in others:
            raise RegistryError(
                f"Quality '{quality.name}' of family '{family}' bounds '{quality.bounds}', which "
                "is no other quality of it."
            )


def check_counters(family: str, counters: Sequence[Counter]) -> None:
    """Raise RegistryError where what is enough of a counter is told by none."""
    names = {counter.name for counter in counters}
    for counter in counters:
        if isinstance(counter.enough, str) and counter.enough not in names:
            raise RegistryError(
                f"Counter '{counter.name}' of family '{family}' has enough at "
                f"'{counter.enough}', which is no counter of it."
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
class RankTable:
    """Figures of a decision by rank: `rows` has one for each rank, in the order of `columns`.

    `capacities` says for each column what a rank has of it, None where that is no limit. `bar`
    names the column that is drawn, and by which ranks are heavy or light.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]
    capacities: tuple[float | None, ...]
    bar: str

    def __post_init__(self) -> None:
        lengths = {len(row) for row in self.rows} | {len(self.capacities)}
        if lengths != {len(self.columns)} or self.bar not in self.columns:
            raise RegistryError(
                "A rank table must have a figure in each row and a capacity for each of its "
                f"columns, which are {', '.join(self.columns)}, and a bar that is one of them."
            )
        if not all(math.isfinite(value) for row in self.rows for value in row):
            raise RegistryError("A rank table must hold numbers, neither infinities nor NaN.")


@dataclass(frozen=True, slots=True)
class Planning(Generic[P, D]):
    """How `shardbench plan` plans with a family.

    Attributes:
        variant: the one that plans unless another is asked for.
        document: a decision as plain JSON types, for whoever carries it out.
        ranks: what each rank gets.
        limited: the problem with a limit in seconds on the search, for variants that can be
            stopped; None where none of them can.
    """

    variant: str
    document: Callable[[P, D], Mapping[str, Any]]
    ranks: Callable[[P, D], RankTable]
    limited: Callable[[P, float], P] | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """Which quality of a cell is a proven bound on its first one; `better` is the first one's."""

    quality: str
    name: str
    better: str

    def gap(self, values: Mapping[str, float]) -> float:
        """Return how far the quality is from its bound, as a share of 1; NaN where unknown."""
        quality, bound = values.get(self.quality), values.get(self.name)
        if quality is None or bound is None or not (quality > 0 and bound > 0):
            return math.nan
        return quality / bound - 1 if self.better == "lower" else bound / quality - 1

    def is_passed(self, values: Mapping[str, float]) -> bool:
        """Whether the quality is better than its bound, so that the bound cannot be one."""
        return self.gap(values) < -_ROUNDING


def find_bound(qualities: Sequence[Mapping[str, Any]]) -> Bound | None:
    """Return the bound on the first of some qualities, given as they are stored, if it has one."""
    for quality in qualities[1:]:
        if quality.get("bounds") and quality["bounds"] == qualities[0]["name"]:
            better = str(qualities[0].get("better", "lower"))
            return Bound(str(qualities[0]["name"]), str(quality["name"]), better)
    return None
