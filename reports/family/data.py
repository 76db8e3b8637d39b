"""The results of one family of planners, and the choice of problems for its figures."""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from msgspec import to_builtins

from harness.measuring.goals import Standing, standing
from harness.model.cell import Cell, by_problem
from harness.model.decisions import models_of
from harness.model.overview import Goal
from harness.model.quality import Bound
from reports.core.formatting import listing, plural, progress
from reports.core.frames import Results
from reports.family.growth import Series, series_of

_LONGEST_SLUG = 60
_IDS_OF_THE_PAGE = (
    *("overview", "findings", "published", "published-changes", "how", "provenance"),
    *("environment", "sources"),
)
_ENVIRONMENT = ("shardbench", "python", "packages", "machine", "cpu", "cores", "seed")


Row = Mapping[str, Any]
"""A row of a frame: its values by column."""


@dataclass(frozen=True)
class FamilyView(Results):
    """One family's results, and the problems for which its figures are drawn."""

    name: str = ""

    @property
    def slug(self) -> str:
        """The name in characters that ids and file names allow, with a hash if it had to change."""
        # Lower case, because some file systems do not distinguish it from upper case.
        plain = re.sub(r"[^a-z0-9_-]+", "-", self.name.lower())[:_LONGEST_SLUG]
        if plain == self.name and plain not in _IDS_OF_THE_PAGE:
            return plain
        return f"{plain}-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}"

    @property
    def place(self) -> float:
        """The family's position in a report, from its overview rows; infinite without any."""
        return min((row.place for cell in self.records for row in cell.overview), default=math.inf)

    @property
    def reference(self) -> str:
        """The family's reference, which the others are compared with by default."""
        return str(self.cells["reference"].iloc[-1])

    @cached_property
    def against(self) -> dict[str, str]:
        """For each problem, the variant that the others are compared with there."""
        pairs = zip(self.cells["problem"], self.cells["against"], strict=True)
        return {str(problem): str(name) for problem, name in pairs}

    @property
    def compared_with(self) -> str:
        """A sentence that names the variants which the others are compared with."""
        others = Counter(name for name in self.against.values() if name != self.reference)
        if not others:
            return f"Everything is compared with `{self.reference}`."
        compared = [
            f"with `{name}` on {plural(amount, 'problem')}" for name, amount in others.items()
        ]
        if sum(others.values()) < len(self.against):
            compared.append(f"with `{self.reference}` on all others")
        return f"The variants are compared {listing(compared)}."

    @cached_property
    def bound(self) -> Bound | None:
        """The quality that is a proven bound on the first quality, or None."""
        found = (cell.bound for cell in self.records)
        return next(filter(None, found), None)

    @cached_property
    def variants(self) -> list[str]:
        """All variants, in the order of the results."""
        return [str(name) for name in self.cells["variant"].unique()]

    @cached_property
    def rungs(self) -> list[str]:
        """The reference, and the variants compared with it that must make its decision."""
        compared = self.cells["variant"][self.cells["against"] == self.reference].unique()
        return [str(name) for name in compared if self._root(str(name)) == self.reference]

    @cached_property
    def _models(self) -> dict[str, str | None]:
        """For each variant its `same_as`: the variant that it must decide the same as, or ""."""
        pairs = zip(self.cells["variant"], self.cells["same_as"], strict=True)
        return {str(variant): str(target) for variant, target in pairs}

    def _root(self, name: str) -> str:
        """Return the last variant in the chain of models (see `_models`) that starts at `name`."""
        return [name, *models_of(name, self._models)][-1]

    def on(self, problem: str) -> dict[str, dict[str, Any]]:
        """Return the cells of one problem, as rows by variant."""
        found = self.cells[self.cells["problem"] == problem]
        return {str(row["variant"]): row for row in rows_of(found)}

    def variants_on(self, problem: str) -> dict[str, Cell]:
        """Return the cells of one problem, by variant."""
        return {cell.variant: cell for cell in self.records if str(cell.problem) == problem}

    @cached_property
    def ladder_problem(self) -> str:
        """The problem with ratios for most of the ladder's variants; of several, the largest.

        If no variant is compared with the reference, it is the problem with most of the variants
        that must make the reference's decision.
        """
        compared = self.cells["ratio"].notna() & self.cells["variant"].isin(self.rungs)
        compared &= self.cells["against"] == self.reference
        if not compared.any():
            is_rung = self.cells["variant"].map(
                lambda name: self._root(str(name)) == self.reference
            )
            compared = is_rung.astype(bool) & (self.cells["status"] == "ok")
        return self._best_problem(compared)

    @cached_property
    def quality_problem(self) -> str:
        """The problem on which most variants with a quality decide on their own."""
        rated = self.cells["cell"].isin(self.primary_qualities["cell"])
        return self._best_problem(rated & (self.cells["decision"] == "own"))

    def _best_problem(self, wanted: "pd.Series[bool]") -> str:
        score = pd.DataFrame(
            {
                "wanted": wanted.astype(int),
                "ok": (self.cells["status"] == "ok").astype(int),
                "size": self.cells["size"].fillna(0.0),
            }
        ).groupby(self.cells["problem"], sort=False)
        totals = score.agg({"wanted": "sum", "ok": "sum", "size": "max"})
        ranked = totals.sort_values(["wanted", "size", "ok"], ascending=False, kind="stable")
        return str(ranked.index[0])

    @cached_property
    def primary_qualities(self) -> pd.DataFrame:
        """The first quality that the family declares, a row per cell."""
        return self.qualities[self.qualities["primary"].astype(bool)]

    @cached_property
    def standings(self) -> list[tuple[Goal, Cell, Standing]]:
        """Each goal with its cell, and its standing: outcome, measured value and limit."""
        cells = by_problem(self.records)
        return [
            (goal, cell, standing(goal, cells[cell.problem]))
            for cell in self.records
            for goal in cell.goals
        ]

    @cached_property
    def series(self) -> list[Series]:
        """The times of variants on problems that differ only in size."""
        return series_of(self.records)


def families(results: Results) -> list[FamilyView]:
    """Split results by family, ordered by declared place and then by first appearance.

    In each family, cells of variants that are not installed come last.
    """
    by_family: dict[str, list[Cell]] = {}
    for cell in results.records:
        by_family.setdefault(cell.family, []).append(cell)
    found = [
        FamilyView(tuple(sorted(cells, key=lambda c: c.status == "not installed")), name=name)
        for name, cells in by_family.items()
    ]
    return sorted(found, key=lambda family: family.place)


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a frame's rows as dictionaries by column."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def environments(results: Results) -> list[dict[str, Any]]:
    """Return the different environments of cells; load and start time make no difference.

    Each has versions, machine and seed, and the lists `cells`, `loads` and `starts` of its cells.
    """
    found: dict[str, dict[str, Any]] = {}
    for cell in results.records:
        stored = to_builtins(cell.environment)
        fixed = {name: stored[name] for name in _ENVIRONMENT if name in stored}
        key = json.dumps(fixed, sort_keys=True)
        held = found.setdefault(key, fixed | {"cells": [], "loads": [], "starts": []})
        held["cells"].append(str(cell.id))
        held["loads"] += [stored["load"]] if "load" in stored else []
        held["starts"] += [stored["started"]] if "started" in stored else []
    return list(found.values())


def stopped_at(cell: Mapping[str, Any]) -> str:
    """Write an over-budget cell's progress and projected time in brackets; "" if unknown."""
    return progress(
        cell["progress_done"],
        cell["progress_total"],
        cell["progress_unit"],
        cell["progress_elapsed_s"],
        cell["projection_s"],
    )
