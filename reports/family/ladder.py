"""The ladder: published and measured shares of the reference's cost, step by step."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from harness.measuring.timing.verdict import CONFIDENCE
from harness.model.cell import Cell
from harness.model.statement import Claim
from reports.core import canvas
from reports.core.canvas import BLUE, GREY, Drawing, Mark
from reports.core.columns import compared
from reports.core.formatting import change, number, with_interval
from reports.family.data import FamilyView


@dataclass(frozen=True, slots=True)
class Rung:
    """A step of the ladder: its claim, and its cell on `ladder_problem` if it was measured there.

    `share` is the published share of the ladder's starting cost; None if that is unknown.
    """

    variant: str
    source: str
    claim: Claim | None
    share: float | None
    cell: Cell | None

    @property
    def published(self) -> str:
        """The published figures as text, or the reason why there are none."""
        claim = self.claim
        step = change(claim.before, claim.after, claim.unit) if claim else ""
        if self.share is not None:
            return f"{number(self.share)} ({step})" if step else "the published start"
        if step:
            return f"{step} published, on another problem"
        if self.source == "shardbench":
            return "ours, not upstream"
        return f"no figure published ({self.source})" if self.source else "no figure published"

    @property
    def measured(self) -> Mark:
        """The share of the reference's CPU time, or the reason why there is none."""
        cell = self.cell
        if cell is None or cell.against != cell.reference:
            return Mark(math.nan, "not run")
        if cell.outcome == "reference":
            return Mark(1.0, "1, the reference")
        ratio = compared(cell)
        if ratio is None:
            return Mark(math.nan, cell.outcome)
        return Mark(ratio.value, with_interval(ratio.value, *ratio.interval), *ratio.interval)


def ladder(family: FamilyView) -> list[Rung]:
    """Return the rungs of a family's ladder.

    Shares are of the first claim's cost `before`; claims under other conditions have none. The
    reference has the share 1 if another rung has one.
    """
    last = {cell.variant: cell for cell in family.records}
    measured = family.variants_on(family.ladder_problem)
    claims = [last[name].claim for name in family.rungs]
    first = next((claim for claim in claims if claim and claim.before > 0), None)

    def share(place: int) -> float | None:
        claim = claims[place]
        if claim is None:
            return 1.0 if first and family.rungs[place] == family.reference else None
        is_comparable = first and (claim.unit, claim.conditions) == (first.unit, first.conditions)
        return claim.after / first.before if first and is_comparable and claim.after > 0 else None

    return [
        Rung(name, last[name].source, claims[place], share(place), measured.get(name))
        for place, name in enumerate(family.rungs)
    ]


def draw_ladder(family: FamilyView) -> Iterator[Drawing]:
    """Draw published and measured shares of the ladder, if two or more rungs were measured."""
    rungs = ladder(family)
    measured = [rung.measured for rung in rungs]
    if sum(not math.isnan(mark.value) for mark in measured) < 2:
        return
    caption = f"Measured on `{family.ladder_problem}`, with {100 * CONFIDENCE:.0f} % intervals."
    looks = {"measured CPU time": (BLUE, "o")}
    series = {"measured CPU time": measured}
    if any(rung.share for rung in rungs):
        looks = {"published": (GREY, "s"), **looks}
        published = [Mark(rung.share or math.nan, rung.published) for rung in rungs]
        series = {"published": published, **series}
        caption += " Published shares are of the ladder's start, and were measured elsewhere."
        conditions = (rung.claim.conditions for rung in rungs if rung.claim)
        for condition in dict.fromkeys(filter(None, conditions)):
            caption += f" Published: {condition}."
    figure, axes = canvas.new_figure(0.9 + 0.3 * len(series) * len(rungs))
    scale = f"share of {family.reference}'s cost, log scale (lower is better)"
    canvas.draw_rows(axes, family.rungs, series, looks, scale)
    canvas.legend_above(figure, looks)
    data = family.data_on(family.ladder_problem, family.rungs)
    data["published_share"] = [rung.share for rung in rungs]
    yield canvas.finish(figure, f"{family.slug}-ladder", "Claimed and measured", caption, data)
