"""What a family was to reach, and whether it did: a table, and why what was missed was missed."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from harness.goals import Standing, standing
from reports.findings.finding import Finding
from reports.formatting import interval, listing, percent, plural, quantity
from reports.tables.table import Entry, Table, code, numbers, outcome_entry, table_of, text
from reports.views.family import FamilyView, rows_of

_ORDER = ("missed", "inconclusive", "projected to be missed", "projected to be met", "not measured")


def standings(family: FamilyView) -> list[tuple[Mapping[str, Any], Mapping[str, Any], Standing]]:
    """Return each goal with the stored cell that it is of, and how it stands."""
    by_problem: dict[str, dict[str, Mapping[str, Any]]] = {}
    for record in family.records:
        by_problem.setdefault(_problem(record), {})[record["variant"]] = record
    return [
        (goal, record, standing(goal, by_problem[_problem(record)]))
        for record in family.records
        for goal in record.get("goals") or ()
    ]


def _problem(record: Mapping[str, Any]) -> str:
    return str(record["cell"]).partition("@")[2]


def goals_table(family: FamilyView) -> Table:
    """Every goal with its limit, what was measured, and whether it is met."""
    return table_of(
        standings(family),
        text("goal", lambda row: row[0]["text"]),
        numbers("limit", lambda row: Entry(_limit(row[0], row[2]), row[2].limit)),
        numbers("measured", lambda row: Entry(row[2].measured(quantity), row[2].value)),
        numbers("interval", lambda row: Entry(interval(row[2].low, row[2].high), row[2].low)),
        text("outcome", lambda row: outcome_entry(row[2].outcome)),
        code("problem", lambda row: _problem(row[1])),
    )


def _limit(goal: Mapping[str, Any], found: Standing) -> str:
    limit = found.limit if math.isfinite(found.limit) else float(goal["limit"])
    if goal["measure"] == "times faster":
        return f"at least {quantity(limit, 'times')}"
    if not math.isfinite(found.limit) and goal.get("against"):  # its figure is not known either
        return f"at most {quantity(limit, 'times')} that of {goal['against']}"
    return f"at most {quantity(limit, 's' if goal['measure'] == 'seconds' else found.unit)}"


def shortcomings(family: FamilyView) -> list[str]:
    """Say of each goal that is missed by how much, and where the time of its variant goes."""
    return [
        f"Missed: {goal['text']}. It is {found.measured(quantity)} where the limit is "
        f"{quantity(found.limit, found.unit)}{_phases(family, goal, record)}."
        for goal, record, found in standings(family)
        if found.outcome in ("missed", "projected to be missed")
    ]


def _phases(family: FamilyView, goal: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    if goal["measure"] not in ("times faster", "seconds"):
        return ""
    phases = family.phases[family.phases["cell"] == record["cell"]]
    rows = rows_of(phases.sort_values("share", ascending=False, kind="stable"))
    told = [f"`{row['name']}` {percent(row['share'])}" for row in rows if row["share"] > 0][:3]
    return f"; the time of `{goal['variant']}` goes to {listing(told)}" if told else ""


def goals(family: FamilyView) -> Iterator[Finding]:
    """Say how many goals are met, and which are not."""
    found = standings(family)
    if not found:
        return
    by_outcome: dict[str, list[str]] = {}
    for goal, _, held in found:
        by_outcome.setdefault(held.outcome, []).append(f'"{goal["text"]}"')
    met = len(by_outcome.get("met", []))
    told = [
        f"{outcome}: {listing(by_outcome[outcome])}" for outcome in _ORDER if outcome in by_outcome
    ]
    whole = f"{met} of {plural(len(found), 'goal')} {'is' if met == 1 else 'are'} met"
    yield Finding("goals", "; ".join([whole, *told]) + ".")
