"""Releases and commits of a library ("points"), their runs, and the libraries that have them."""

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import structs

from harness.contract.abilities.series import Series
from harness.contract.family import Family, load
from harness.contract.registry import Registry
from harness.measuring.environment import environment
from harness.model.cell import Cell, Environment

Kind = Literal["releases", "commits"]

CALLS = "calls "
"""The beginning of the counters that hold how many calls each function makes."""

_SHORT = 9


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
        return self.id[:_SHORT] if self.date else self.id


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

    @property
    def is_own(self) -> bool:
        """Whether the cell is of this point, not of another commit with the same files."""
        return self.cell.variant == self.point.id

    def calls(self, part: str) -> dict[str, int]:
        """Return the number of calls in a part of the planner call, by calling function.

        A release's cell counts the calls of its first part only, under names without the part.
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


def environment_of(declared: Series) -> Environment:
    """Return the environment without the library, and with the driver's hash as its code."""
    commits = declared.commits
    digest = hashlib.sha256(json.dumps(commits and [commits.package, commits.paths]).encode())
    for path in sorted(declared.driver.parent.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    found = environment(0)
    packages = {k: v for k, v in found.packages.items() if k != declared.library}
    return structs.replace(found, code=digest.hexdigest()[:12], packages=packages)


def libraries(registry: Registry, kind: Kind) -> dict[str, tuple[Family[Any, Any], Series]]:
    """Return the libraries that declare `kind`, with their families and declarations, by name."""
    declared = ((family, load(family.abilities.series)) for family in registry.families)
    return {
        series.library: (family, series)
        for family, series in declared
        if series and getattr(series, kind)
    }
