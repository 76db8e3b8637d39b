"""The results of one family of planners, and the choice of problems for its figures."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from harness.contract.registry import installed_statements
from harness.measuring.statements import Reading, evaluate
from harness.model.cell import Cell, by_problem
from harness.model.quality import models_of
from harness.model.statement import Claim, Statement
from reports.core.columns import compared, first_quality
from reports.core.formatting import change, names, number
from reports.core.frames import Results
from reports.family.growth import Series, series_of

_LONGEST_SLUG = 60
_IDS_OF_THE_PAGE = (
    *("overview", "findings", "published", "published-changes", "provenance"),
    *("environment", "sources"),
)


@dataclass(frozen=True, slots=True)
class Rung:
    """A step of the ladder: its claim, and its cell on `ladder_problem` if it was measured there.

    The ladder is the reference and the variants that must make its decision.

    `share` is the published share of the ladder's starting cost, see `published_shares`.
    """

    variant: str
    source: str
    claim: Claim | None
    share: float | None
    cell: Cell | None

    @property
    def published(self) -> str:
        """The published figures as text, or the reason why there are none."""
        step = ""
        if self.claim:
            step = change(self.claim.before, self.claim.after, self.claim.unit)
        if self.share is not None:
            return f"{number(self.share)} ({step})" if step else "the published start"
        if step:
            return f"{step} published, on another problem"
        if self.source == "shardbench":
            return "ours, not upstream"
        return f"no figure published ({self.source})" if self.source else "no figure published"


def published_shares(claims: Iterable[Claim | None]) -> list[float | None]:
    """Return the claimed share of the ladder's starting cost after each rung; None if unknown.

    A rung's share is the product of after / before over the claims so far, or only its own
    after / before if its `before` is the starting cost. A claim under other conditions than those
    of the first claim has no share.
    """
    first: Claim | None = None
    share = 1.0
    shares: list[float | None] = []
    for claim in claims:
        if claim is None or not (claim.before > 0 and claim.after > 0):
            shares.append(None)
            continue
        first = first or claim
        if claim.conditions != first.conditions:
            shares.append(None)
            continue
        starts = (claim.before, claim.unit) == (first.before, first.unit)
        share = (1.0 if starts else share) * claim.ratio
        shares.append(share)
    return shares


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
        return self.records[-1].reference

    @cached_property
    def against(self) -> dict[str, str]:
        """For each problem, the variant that the others are compared with there."""
        return {str(cell.problem): cell.against for cell in self.records}

    @property
    def compared_with(self) -> str:
        """A sentence that names the variants which the others are compared with."""
        return f"Compared with {names(dict.fromkeys(self.against.values()))}."

    @cached_property
    def variants(self) -> list[str]:
        """All variants, in the order of the results."""
        return list(dict.fromkeys(cell.variant for cell in self.records))

    def variants_on(self, problem: str) -> dict[str, Cell]:
        """Return the cells of one problem, by variant."""
        return self._by_problem.get(problem, {})

    @cached_property
    def _by_problem(self) -> dict[str, dict[str, Cell]]:
        return {str(problem): cells for problem, cells in by_problem(self.records).items()}

    @cached_property
    def _rungs(self) -> list[str]:
        """The reference, and the variants compared with it that must make its decision."""
        models = {cell.variant: cell.same_as for cell in self.records}
        compared = (cell.variant for cell in self.records if cell.against == self.reference)
        return [
            variant
            for variant in dict.fromkeys(compared)
            if [variant, *models_of(variant, models)][-1] == self.reference
        ]

    @cached_property
    def ladder(self) -> list[Rung]:
        """The rungs of the ladder; the reference has the share 1 if any rung has a claim."""
        last = {cell.variant: cell for cell in self.records}
        measured = self.variants_on(self.ladder_problem)
        shares = published_shares(last[rung].claim for rung in self._rungs)
        if any(shares) and shares[0] is None and self._rungs[0] == self.reference:
            shares[0] = 1.0
        return [
            Rung(name, last[name].source, last[name].claim, share, measured.get(name))
            for name, share in zip(self._rungs, shares, strict=True)
        ]

    @cached_property
    def ladder_problem(self) -> str:
        """The problem with ratios for most rungs; of several, the largest."""
        return self._problem_with_most(
            lambda cell: (
                cell.variant in self._rungs
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

    @cached_property
    def goals(self) -> list[Reading]:
        """The declared goals whose variant was measured on their problem."""
        cells = {cell.id: cell for cell in self.records}
        goals = (evaluate(found, cells) for found in self.statements if found.use == "goal")
        return [goal for goal in goals if goal.after]

    @cached_property
    def series(self) -> list[Series]:
        """The times of variants on problems that differ only in size."""
        return series_of(self.records)


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
    ratios = {c.variant: c.ratio.value for c in cells if c.decision == "same" and c.ratio}
    if ratios:
        ours = min(ratios, key=ratios.__getitem__)
        against = family.against[family.ladder_problem]
        name = f"{family.name}: {ours} against {against}"
        yield Statement("headline", name, family.ladder_problem, against, ours, family=family.name)
