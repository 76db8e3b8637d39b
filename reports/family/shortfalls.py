"""Findings on shortfalls: different decisions, failures, stopped calls, repeated work, goals."""

from collections.abc import Iterable, Iterator

import pandas as pd

from harness.model.cell import Cell
from harness.model.overview import Goal
from reports.core.formatting import count, listing, names, percent, plural, quantity
from reports.core.frames import DIFFERENT
from reports.core.page import Finding
from reports.family.data import FamilyView, rows_of, stopped_at

_REASON_LENGTH = 160
_MISSED = ("missed", "projected to be missed")
_GOALS = ("missed", "inconclusive", "projected to be missed", "projected to be met", "not measured")


def shortfalls(family: FamilyView) -> Iterator[Finding]:
    """Yield findings on cells that cannot be compared, with the reasons."""
    for variant, cells in _by_variant(family, DIFFERENT):
        target = cells["same_as"].iloc[0] or cells["against"].iloc[0]
        yield Finding(
            "different decisions",
            f"`{variant}` must make the decision of `{target}`, and makes a different one on "
            f"{plural(len(cells), 'problem')}.",
            f"Its times are not compared there: {names(cells['problem'], most=3)}.",
        )
    for variant, cells in _by_variant(family, "failed"):
        reason = " ".join(str(cells["reason"].iloc[0]).split())
        if len(reason) > _REASON_LENGTH:
            reason = reason[:_REASON_LENGTH] + "…"
        yield Finding(
            "failed",
            f"`{variant}` failed on {plural(len(cells), 'problem')}.",
            f"On {names(cells['problem'], most=3)}" + (f": {reason}" if reason else "."),
        )
    for variant, cells in _by_variant(family, "over budget"):
        stops = [f"`{row['problem']}`{stopped_at(row)}" for row in rows_of(cells)]
        yield Finding(
            "over budget",
            f"`{variant}` was over budget on {plural(len(cells), 'problem')}.",
            f"It was stopped on {listing(stops, most=3)}.",
        )
    unclear = family.cells[family.cells["outcome"] == "inconclusive"]
    if len(unclear):
        compared = int(family.cells["ratio"].notna().sum())
        are = "It is" if len(unclear) == 1 else "They are"
        yield Finding(
            "inconclusive",
            f"{len(unclear)} of {plural(compared, 'comparison')} stayed inconclusive.",
            f"{are} of {names(unclear['variant'].unique())}: the interval contains a limit of the "
            "noise floor.",
        )
    if missing := [variant for variant, _ in _by_variant(family, "not installed")]:
        yield Finding("not installed", f"Not measured, because not installed: {names(missing)}.")


def repetition(family: FamilyView) -> Iterator[Finding]:
    """Yield a finding per counter on the variants that exceed its sufficient count."""
    counters = family.counters.assign(excess=family.counters["value"] - family.counters["enough"])
    for name, beyond in counters[counters["excess"] > 0].groupby("name", sort=False):
        excess = beyond.groupby("problem", sort=False)["excess"].agg(["count", "max"])
        problem = excess.sort_values(["count", "max"], kind="stable").index[-1]
        there = counters[(counters["name"] == name) & (counters["problem"] == problem)]
        is_over = there["excess"] > 0
        over = there[is_over].sort_values("value", ascending=False, kind="stable")
        excesses = [f"{count(row['value'])} in `{row['variant']}`" for row in rows_of(over)]
        detail = f"Counted on `{problem}`: {str(over['meaning'].iloc[0]).rstrip('.')}"
        fine = there["variant"][~is_over]
        if len(fine):
            detail += f"; {names(fine)} {'needs' if len(fine) == 1 else 'need'} no more than that"
        yield Finding(
            "repeated work",
            f"`{name}`: {listing(excesses)}, where {count(over['enough'].max())} is sufficient.",
            f"{detail}.",
        )


def goals(family: FamilyView) -> Iterator[Finding]:
    """Yield a finding with the number of goals that are met, and a list of the others."""
    by_outcome: dict[str, list[str]] = {}
    for goal, _, found in family.standings:
        by_outcome.setdefault(found.outcome, []).append(f'"{goal.text}"')
    if by_outcome:
        met = len(by_outcome.get("met", []))
        whole = (
            f"{met} of {plural(len(family.standings), 'goal')} {'is' if met == 1 else 'are'} met"
        )
        unmet = [f"{name}: {listing(by_outcome[name])}" for name in _GOALS if name in by_outcome]
        yield Finding("goals", "; ".join([whole, *unmet]) + ".")


def goals_in_a_line(families: Iterable[FamilyView]) -> str:
    """Return a sentence on the goals of all families: how many are met, and which are not.

    Return "" if there are no goals.
    """
    standings = [standing for family in families for standing in family.standings]
    if not standings:
        return ""
    met = sum(found.outcome == "met" for _, _, found in standings)
    missed = [f'"{goal.text}"' for goal, _, found in standings if found.outcome in _MISSED]
    unknown = [
        f'"{goal.text}" ({found.reason.replace("over budget", "reached its time limit")})'
        for goal, _, found in standings
        if found.outcome == "not measured"
    ]
    parts = [f"{met} of {plural(len(standings), 'goal')} {'is' if met == 1 else 'are'} met"]
    parts += [f"missed: {listing(missed, most=2)}"] * bool(missed)
    parts += [f"not measured: {listing(unknown, most=2)}"] * bool(unknown)
    return "; ".join(parts) + "."


def shortcomings(family: FamilyView) -> list[str]:
    """Return a sentence per missed goal: measurement, limit, and the variant's longest phases."""
    return [
        f"Missed: {goal.text}. It is {found.measured(quantity)} where the limit is "
        f"{quantity(found.limit, found.unit)}{_phases(family, goal, cell)}."
        for goal, cell, found in family.standings
        if found.outcome in _MISSED
    ]


def _phases(family: FamilyView, goal: Goal, cell: Cell) -> str:
    if goal.measure not in ("times faster", "seconds"):
        return ""
    phases = family.phases[family.phases["cell"] == str(cell.id)]
    rows = rows_of(phases.sort_values("share", ascending=False, kind="stable"))
    phases_shown = [f"`{row['name']}` {percent(row['share'])}" for row in rows if row["share"] > 0][
        :3
    ]
    return f"; the time of `{goal.variant}` goes to {listing(phases_shown)}" if phases_shown else ""


def _by_variant(family: FamilyView, outcome: str) -> Iterator[tuple[str, pd.DataFrame]]:
    found = family.cells[family.cells["outcome"] == outcome]
    for variant, cells in found.groupby("variant", sort=False):
        yield str(variant), cells
