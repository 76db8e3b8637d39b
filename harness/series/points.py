"""Releases and commits of a library ("points"), their runs, and the steps between them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.contract.abilities import Series, load
from harness.contract.family import Family
from harness.contract.registry import Registry
from harness.model.cell import Cell

Kind = Literal["releases", "commits"]

CALLS = "calls "
"""The beginning of the counters that hold how many calls each function makes."""

DECISION = "decision"
"""The name of the decision itself among the figures of a step."""


@dataclass(frozen=True, slots=True)
class Point:
    """A release or a commit.

    `id` is the version or the commit hash. The other fields are empty for a release: `date` is the
    committer date, such as 2026-01-31, and `pull_request` the number, empty if unknown.
    """

    id: str
    date: str = ""
    title: str = ""
    pull_request: str = ""

    @property
    def name(self) -> str:
        """The version, or the abbreviated commit hash."""
        return self.id[:9] if self.date else self.id


@dataclass(frozen=True, slots=True)
class Run:
    """A release or commit, with its cell or that of a commit with the same files."""

    point: Point
    cell: Cell

    @property
    def name(self) -> str:
        """The version, or the abbreviated commit hash."""
        return self.point.name

    @property
    def is_ok(self) -> bool:
        """Whether the run succeeded."""
        return self.cell.status == "ok"

    def calls(self, part: str) -> dict[str, int]:
        """Return the number of calls in a part of the planner call, by calling function.

        Older cells of releases count the calls of the first part only, under names without it.
        """
        counters = self.cell.counters
        prefix = f"{CALLS}{part} " if f"{part}_calls" in counters else CALLS
        return {
            name.removeprefix(prefix): count
            for name, count in counters.items()
            if name.startswith(prefix)
        }

    def value(self, name: str) -> float:
        """Return a counter or quality, or the total calls of a part (`PART_calls`); NaN if none."""
        figures: dict[str, float] = {**self.cell.counters, **self.cell.quality}
        if name in figures:
            return figures[name]
        made = self.calls(name.removesuffix("_calls")) if name.endswith("_calls") else {}
        return sum(made.values()) if made else math.nan


@dataclass(frozen=True, slots=True)
class Step:
    """Two successive runs of a series, of releases or commits.

    Attributes:
        before: the last successful run before `after`.
        after: the run of the point that made the difference.
        suspects: failed points between the two; any may have made the difference instead.
        is_outside: whether the commit of `after` changes no file in the declared paths.
    """

    before: Run
    after: Run
    suspects: tuple[Point, ...] = ()
    is_outside: bool = False

    def factor(self, name: str) -> float:
        """Return the ratio of a figure, after / before; NaN if not measured or both are 0."""
        before, after = self.before.value(name), self.after.value(name)
        return after / before if before else math.nan if before == after else math.inf

    def change(self, name: str) -> float:
        """Return the absolute logarithm of a figure's ratio, 0 if it does not change.

        The change of `DECISION` is 0 or 1.
        """
        if name == DECISION:
            return float(self.before.cell.fingerprint != self.after.cell.fingerprint)
        factor = self.factor(name)
        if math.isnan(factor):
            return 0.0
        return abs(math.log(factor)) if 0 < factor < math.inf else math.inf


def neighbours(runs: Sequence[Run]) -> Iterator[Step]:
    """Yield each pair of successive successful runs as a step."""
    before: Run | None = None
    skipped: list[Point] = []
    for run in runs:
        if not run.is_ok:
            skipped.append(run.point)
            continue
        if before is not None:
            yield Step(before, run, tuple(skipped))
        before, skipped = run, []


def libraries(registry: Registry, kind: Kind) -> dict[str, tuple[Family[Any, Any], Series]]:
    """Return the libraries that declare `kind`, with their families and declarations, by name."""
    declared = ((family, load(family.abilities.series)) for family in registry.families)
    return {
        series.library: (family, series)
        for family, series in declared
        if series and getattr(series, kind)
    }
