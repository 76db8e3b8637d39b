"""What a family was to reach, and whether it did: a table, and why what was missed was missed."""

import math
from collections.abc import Iterator

from harness.measuring.goals import Standing, standing
from harness.model.cell import Cell, Goal
from harness.model.ids import ProblemId
from reports.findings.finding import Finding
from reports.formatting import interval, listing, percent, plural, quantity
from reports.tables.table import Entry, Table, code, numbers, outcome_entry, table_of, text
from reports.views.family import FamilyView, rows_of

_ORDER = ("missed", "inconclusive", "projected to be missed", "projected to be met", "not measured")


def standings(family: FamilyView) -> list[tuple[Goal, Cell, Standing]]:
    """Return each goal with the cell that it is of, and how it stands."""
    by_problem: dict[ProblemId, dict[str, Cell]] = {}
    for cell in family.records:
        by_problem.setdefault(cell.problem, {})[cell.variant] = cell
    return [
        (goal, cell, standing(goal, by_problem[cell.problem]))
        for cell in family.records
        for goal in cell.goals
    ]


def goals_table(family: FamilyView) -> Table:
    """Every goal with its limit, what was measured, and whether it is met."""
    return table_of(
        standings(family),
        text("goal", lambda row: row[0].text),
        numbers("limit", lambda row: Entry(_limit(row[0], row[2]), row[2].limit)),
        numbers("measured", lambda row: Entry(row[2].measured(quantity), row[2].value)),
        numbers("interval", lambda row: Entry(interval(row[2].low, row[2].high), row[2].low)),
        text("outcome", lambda row: outcome_entry(row[2].outcome)),
        code("problem", lambda row: str(row[1].problem)),
    )


def _limit(goal: Goal, found: Standing) -> str:
    limit = found.limit if math.isfinite(found.limit) else goal.limit
    if goal.measure == "times faster":
        return f"at least {quantity(limit, 'times')}"
    if not math.isfinite(found.limit) and goal.against:  # its figure is not known either
        return f"at most {quantity(limit, 'times')} that of {goal.against}"
    return f"at most {quantity(limit, 's' if goal.measure == 'seconds' else found.unit)}"


def shortcomings(family: FamilyView) -> list[str]:
    """Say of each goal that is missed by how much, and where the time of its variant goes."""
    return [
        f"Missed: {goal.text}. It is {found.measured(quantity)} where the limit is "
        f"{quantity(found.limit, found.unit)}{_phases(family, goal, cell)}."
        for goal, cell, found in standings(family)
        if found.outcome in ("missed", "projected to be missed")
    ]


def _phases(family: FamilyView, goal: Goal, cell: Cell) -> str:
    if goal.measure not in ("times faster", "seconds"):
        return ""
    phases = family.phases[family.phases["cell"] == str(cell.id)]
    rows = rows_of(phases.sort_values("share", ascending=False, kind="stable"))
    told = [f"`{row['name']}` {percent(row['share'])}" for row in rows if row["share"] > 0][:3]
    return f"; the time of `{goal.variant}` goes to {listing(told)}" if told else ""


def goals(family: FamilyView) -> Iterator[Finding]:
    """Say how many goals are met, and which are not."""
    found = standings(family)
    if not found:
        return
    by_outcome: dict[str, list[str]] = {}
    for goal, _, held in found:
        by_outcome.setdefault(held.outcome, []).append(f'"{goal.text}"')
    met = len(by_outcome.get("met", []))
    told = [
        f"{outcome}: {listing(by_outcome[outcome])}" for outcome in _ORDER if outcome in by_outcome
    ]
    whole = f"{met} of {plural(len(found), 'goal')} {'is' if met == 1 else 'are'} met"
    yield Finding("goals", "; ".join([whole, *told]) + ".")
