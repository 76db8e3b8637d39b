"""The results of one family of planners, and the choice of problems for its figures."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd
from msgspec import to_builtins

from harness.contract.registry import installed_statements
from harness.measuring.statements import Reading, evaluate
from harness.model.cell import Cell
from harness.model.decisions import models_of
from harness.model.quality import Bound
from harness.model.statement import Statement
from reports.core.formatting import listing, plural
from reports.core.frames import Results
from reports.family.scaling import exponents, long_series, sweeps

_LONGEST_SLUG = 60
_IDS_OF_THE_PAGE = (
    *("overview", "findings", "published", "published-changes", "provenance"),
    *("environment", "sources"),
)
_ENVIRONMENT = ("shardbench", "python", "packages", "machine", "cpu", "cores", "seed")


Row = Mapping[str, Any]
"""A row of a frame: its values by column."""


@dataclass(frozen=True)
class FamilyView(Results):
    """One family's results, and the problems for which its figures are drawn."""

    name: str = ""
    statements: tuple[Statement, ...] = ()

    @property
    def slug(self) -> str:
        """The name in characters that ids and file names allow, with a hash if it had to change."""
        # Lower case, because some file systems do not distinguish it from upper case.
        plain = re.sub(r"[^a-z0-9_-]+", "-", self.name.lower())[:_LONGEST_SLUG]
        if plain == self.name and plain not in _IDS_OF_THE_PAGE:
            return plain
        return f"{plain}-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}"

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

    def whose_decision(self, cell: Mapping[str, Any]) -> str:
        """Return a cell's decision: "same" means the same as the variant that it is compared with.

        If the decision must equal that of another variant, return "as NAME" instead.
        """
        decision = str(cell["decision"])
        if decision == "same" and self._root(cell["variant"]) != self._root(cell["against"]):
            return f"as {cell['same_as']}"
        return decision

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

    @cached_property
    def phase_problem(self) -> str:
        """`ladder_problem` if its phases are known, else the problem with phases in most cells."""
        if (self.phases["problem"] == self.ladder_problem).any():
            return self.ladder_problem
        return self._best_problem(self.cells["cell"].isin(self.phases["cell"]))

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
    def goals(self) -> list[Reading]:
        """The declared goals whose variant was measured on their problem."""
        cells = {cell.id: cell for cell in self.records}
        goals = (evaluate(found, cells) for found in self.statements if found.use == "goal")
        return [goal for goal in goals if goal.after]

    @cached_property
    def sweep_points(self) -> pd.DataFrame:
        """The points of the family's sweeps over size, without variants on few sizes."""
        return long_series(sweeps(self.cells))

    @cached_property
    def exponents(self) -> pd.DataFrame:
        """The fitted exponents of these sweeps, see `reports.family.scaling.exponents`."""
        return exponents(self.sweep_points)


def families(
    results: Results, declared: Mapping[str, Sequence[Statement]] | None = None
) -> list[FamilyView]:
    """Split results by family, in the order of `declared` and then of first appearance.

    `declared` has the statements of families, by default of the installed ones. A family without a
    headline on its problems gets one of its fastest variant with the same decision. In each family,
    cells of variants that are not installed come last.
    """
    declared = installed_statements() if declared is None else declared
    by_family: dict[str, list[Cell]] = {}
    for cell in results.records:
        by_family.setdefault(cell.family, []).append(cell)
    views = []
    for name, cells in by_family.items():
        view = FamilyView(
            tuple(sorted(cells, key=lambda c: c.status == "not installed")), name=name
        )
        statements = tuple(declared.get(name, ()))
        measured = {str(cell.problem) for cell in cells}
        headlines = (found for found in statements if found.use == "headline")
        if not any(pair.problem in measured for found in headlines for pair in found.pairs):
            statements = (*_fastest(view), *statements)
        views.append(replace(view, statements=statements))
    places = {name: place for place, name in enumerate(declared)}
    return sorted(views, key=lambda view: places.get(view.name, len(places)))


def _fastest(family: FamilyView) -> Iterator[Statement]:
    """Yield a headline of the fastest variant with the same decision on `ladder_problem`."""
    cells = family.variants_on(family.ladder_problem).values()
    ratios = {cell.variant: cell.ratio for cell in cells if cell.decision == "same"}
    compared = {name: ratio.value for name, ratio in ratios.items() if ratio}
    if compared:
        ours, against = (
            min(compared, key=compared.__getitem__),
            family.against[family.ladder_problem],
        )
        name = f"{family.name}: {ours} against {against}"
        yield Statement("headline", name, family.ladder_problem, against, ours, family=family.name)


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


def ratios(cells: pd.DataFrame) -> "pd.Series[float]":
    """Return the measured ratio of each cell, and 1 for the reference."""
    return cells["ratio"].mask(cells["outcome"] == "reference", 1.0)
