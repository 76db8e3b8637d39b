"""The results of one family of planners, and the choice of problems for its figures."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from harness.contract.registry import installed_statements
from harness.model.cell import Cell, by_problem
from harness.model.quality import models_of
from harness.model.statement import Statement
from reports.core.columns import compared, first_quality
from reports.core.frames import Results

_LONGEST_SLUG = 60


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
        if plain == self.name:
            return plain
        return f"{plain}-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}"

    @property
    def reference(self) -> str:
        """The family's reference, which the others are compared with by default."""
        return self.records[-1].reference

    @cached_property
    def against(self) -> dict[str, str]:
        """For each problem, the variant that the others are compared with there."""
        return {str(cell.problem): cell.against for cell in self.records}

    @cached_property
    def variants(self) -> list[str]:
        """All variants, in the order of the results."""
        return list(dict.fromkeys(cell.variant for cell in self.records))

    def variants_on(self, problem: str) -> dict[str, Cell]:
        """Return the cells of one problem, by variant."""
        return self._by_problem.get(problem, {})

    def data_on(self, problem: str, variants: list[str]) -> pd.DataFrame:
        """Return the cells of some variants on a problem as data for users, a row per variant."""
        frame = self.cells[self.cells["problem"] == problem].set_index("variant")
        return frame.reindex(variants).reset_index()

    @cached_property
    def _by_problem(self) -> dict[str, dict[str, Cell]]:
        return {str(problem): cells for problem, cells in by_problem(self.records).items()}

    @cached_property
    def rungs(self) -> list[str]:
        """The ladder: the reference, and the variants compared with it that must decide like it."""
        models = {cell.variant: cell.same_as for cell in self.records}
        compared = (cell.variant for cell in self.records if cell.against == self.reference)
        return [
            variant
            for variant in dict.fromkeys(compared)
            if [variant, *models_of(variant, models)][-1] == self.reference
        ]

    @cached_property
    def ladder_problem(self) -> str:
        """The problem with ratios for most rungs; of several, the largest."""
        return self._problem_with_most(
            lambda cell: (
                cell.variant in self.rungs
                and cell.against == self.reference
                and compared(cell) is not None
            )
        )

    @cached_property
    def quality_problem(self) -> str:
        """The problem on which most variants with a quality decide on their own."""
        return self._problem_with_most(
            lambda cell: cell.decision == "own" and first_quality(cell) is not None
        )

    def _problem_with_most(self, is_wanted: Callable[[Cell], bool]) -> str:
        """Return the problem with most cells that are wanted; then the largest one."""

        def score(problem: str) -> tuple[int, float, int]:
            cells = self.variants_on(problem).values()
            measured = sum(cell.status == "ok" for cell in cells)
            return sum(map(is_wanted, cells)), max(cell.size or 0.0 for cell in cells), measured

        return max(self._by_problem, key=score)


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
    for cell in sorted(results.records, key=lambda cell: cell.status == "not installed"):
        by_family.setdefault(cell.family, []).append(cell)
    views = []
    for name in dict.fromkeys((*declared, *(cell.family for cell in results.records))):
        if name in by_family:
            statements = tuple(declared.get(name, ()))
            view = FamilyView(tuple(by_family[name]), name=name, statements=statements)
            pairs = (s.pairs for s in statements if s.use == "headline")
            if not any(pair.problem in view.against for found in pairs for pair in found):
                view = replace(view, statements=(*_fastest(view), *statements))
            views.append(view)
    return views


def _fastest(family: FamilyView) -> Iterator[Statement]:
    """Yield a headline of the fastest variant with the same decision on `ladder_problem`."""
    cells = family.variants_on(family.ladder_problem).values()
    ratios = {c.variant: c.ratio.value for c in cells if c.decision == "same" and c.ratio}
    if ratios:
        ours = min(ratios, key=ratios.__getitem__)
        against = family.against[family.ladder_problem]
        name = f"{family.name}: {ours} against {against}"
        yield Statement("headline", name, family.ladder_problem, against, ours, family=family.name)
