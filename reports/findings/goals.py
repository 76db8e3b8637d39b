"""Sentences on what a family was to reach, and why what was missed was missed."""

from collections.abc import Iterator

from harness.model.cell import Cell, Goal
from reports.findings.finding import Finding
from reports.formatting import listing, percent, plural, quantity
from reports.views.family import FamilyView, rows_of

_ORDER = ("missed", "inconclusive", "projected to be missed", "projected to be met", "not measured")


def goals(family: FamilyView) -> Iterator[Finding]:
    """Say how many goals are met, and which are not."""
    by_outcome: dict[str, list[str]] = {}
    for goal, _, found in family.standings:
        by_outcome.setdefault(found.outcome, []).append(f'"{goal.text}"')
    if by_outcome:
        met = len(by_outcome.get("met", []))
        whole = (
            f"{met} of {plural(len(family.standings), 'goal')} {'is' if met == 1 else 'are'} met"
        )
        told = [f"{each}: {listing(by_outcome[each])}" for each in _ORDER if each in by_outcome]
        yield Finding("goals", "; ".join([whole, *told]) + ".")


def shortcomings(family: FamilyView) -> list[str]:
    """Say of each goal that is missed by how much, and where the time of its variant goes."""
    return [
        f"Missed: {goal.text}. It is {found.measured(quantity)} where the limit is "
        f"{quantity(found.limit, found.unit)}{_phases(family, goal, cell)}."
        for goal, cell, found in family.standings
        if found.outcome in ("missed", "projected to be missed")
    ]


def _phases(family: FamilyView, goal: Goal, cell: Cell) -> str:
    if goal.measure not in ("times faster", "seconds"):
        return ""
    phases = family.phases[family.phases["cell"] == str(cell.id)]
    rows = rows_of(phases.sort_values("share", ascending=False, kind="stable"))
    told = [f"`{row['name']}` {percent(row['share'])}" for row in rows if row["share"] > 0][:3]
    return f"; the time of `{goal.variant}` goes to {listing(told)}" if told else ""
