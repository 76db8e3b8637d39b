"""Our gains over today's release of each system, and its published and measured speed-ups."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from harness.model.overview import OverviewRow
from reports.family.data import FamilyView, rows_of
from reports.family.ladder import ladder
from reports.record.claims import Factor, Interval, divided

_COLUMNS = [
    *("system", "family", "slug", "problem", "declared"),
    *("today", "ours", "today_is", "next_step"),
    *("published", "published_before", "published_after", "published_unit"),
    *("measured", "measured_low", "measured_high", "measured_on"),
    *("counter", "done", "enough", "rated_on"),
    *("times_as_fast", "low", "high", "basis", "decision"),
    *("best", "rated", "gap_today", "gap_ours"),
    *("quality", "meaning", "unit", "quality_today", "quality_ours"),
]
_NAN = math.nan
_AFTER_DECLARED = 1000  # the place of a row that no family declares


def overview(families: Sequence[FamilyView]) -> pd.DataFrame:
    """Return a row per system, ordered by the places that families declare.

    `published` and `measured` are speed-ups of the published change, as claimed and as measured
    here. `times_as_fast` is the speed-up of our variant over today's release. Its `basis` is
    `measured`; if today's release was stopped, it is `projected` (from its progress) or `stopped`
    (from its budget: a lower bound). `done` is the value of `counter` in today's release, `enough`
    a sufficient value. `decision` compares the two: `same`, `own`, `different`, or "" if either
    made none. `gap_today` and `gap_ours` are the proven gaps of the release's `rated` decision and
    of our `best` one; `quality_today` and `quality_ours` are their values of the first `quality`.
    Unknown values are NaN. A family that declares no row on a measured problem gets a row with its
    reference and the fastest variant with the same decision; only there `declared` is false.
    """
    found = []
    for family in families:
        declared = dict.fromkeys(row for cell in family.records for row in cell.overview)
        measured = [row for row in declared if row.problem in family.against]
        found += [(row.place, _row(family, row)) for row in measured or _undeclared(family)]
    found.sort(key=lambda placed: placed[0])  # stable, so that families stay together
    table = pd.DataFrame([row for _, row in found], columns=_COLUMNS)
    texts = table.select_dtypes(exclude="number").columns
    numbers = ["published", "measured", "done", "enough", "times_as_fast"]
    numbers += [f"{figure}_{whose}" for figure in ("gap", "quality") for whose in ("today", "ours")]
    return table.astype({**dict.fromkeys(texts, object), **dict.fromkeys(numbers, float)})


def _undeclared(family: FamilyView) -> list[OverviewRow]:
    problem = family.ladder_problem
    against = family.against[problem]
    here = family.cells[(family.cells["problem"] == problem) & (family.cells["decision"] == "same")]
    fastest = here[here["ratio"].notna()].nsmallest(1, "ratio")["variant"].tolist()
    claimed = family.cells[family.cells["claim_after"].notna()]["variant"].tolist()
    rungs = [rung for rung in family.rungs if rung in claimed]
    ours = str(fastest[0]) if fastest else against
    name = f"{family.name}: {ours} against {against}" if fastest else family.name
    last = rungs[-1] if rungs else ""
    return [OverviewRow(name, problem, against, ours, _AFTER_DECLARED, published=last)]


def _row(family: FamilyView, row: OverviewRow) -> dict[str, Any]:
    cells = family.on(row.problem)
    reached = _factor(cells, row.ours, row.today)
    rated_on = row.rated_on if row.rated_on in family.against else row.problem
    rated = family.on(rated_on)
    best = row.best if row.best in rated else row.ours
    default = row.rated if row.rated in rated else row.today
    first = _first_qualities(family, rated_on)
    return {
        "system": row.system,
        "family": family.name,
        "slug": family.slug,
        "problem": row.problem,
        "declared": row.place != _AFTER_DECLARED,
        "today": row.today,
        "ours": row.ours,
        "today_is": row.today_is,
        "next_step": row.next_step,
        **_published(family, row),
        **_measured(family, row),
        **_counted(family, row, rated_on),
        "rated_on": rated_on,
        "times_as_fast": reached.value,
        "low": reached.low,
        "high": reached.high,
        "basis": reached.basis,
        "decision": _decision(cells, row),
        "best": best,
        "rated": default,
        "gap_today": _gap(rated, default),
        "gap_ours": _gap(rated, best),
        **_described(family),
        "quality_today": first.get(default, _NAN),
        "quality_ours": first.get(best, _NAN),
    }


def _described(family: FamilyView) -> dict[str, str]:
    """Return name, meaning and unit of the family's first quality; empty texts without one."""
    known = family.primary_qualities.tail(1)
    columns = {"quality": "name", "meaning": "meaning", "unit": "unit"}
    return {name: "".join(known[column]) for name, column in columns.items()}


def _first_qualities(family: FamilyView, problem: str) -> dict[str, float]:
    rated = family.primary_qualities[family.primary_qualities["problem"] == problem]
    return dict(zip(rated["variant"], rated["value"].astype(float), strict=True))


def _factor(cells: Mapping[str, Mapping[str, Any]], ours: str, today: str) -> Factor:
    """Return how many times as fast `ours` is as `today` on one problem."""
    if ours not in cells or today not in cells or ours == today:
        return Factor()
    fast, slow = cells[ours], cells[today]
    if slow["status"] == "over budget" and fast["wall_s"] > 0:
        if slow["projection_s"] > 0:
            return Factor(slow["projection_s"] / fast["wall_s"], basis="projected")
        return Factor(slow["budget_s"] / fast["wall_s"], basis="stopped")
    return divided(_ratio(slow), _ratio(fast))


def _ratio(cell: Mapping[str, Any]) -> Interval:
    if cell["outcome"] == "reference":
        return 1.0, 1.0, 1.0
    return cell["ratio"], cell["ratio_low"], cell["ratio_high"]


def _published(family: FamilyView, row: OverviewRow) -> dict[str, Any]:
    """Return the published speed-up; for a rung of the ladder, it is over the ladder's start."""
    claims = family.cells[family.cells["variant"] == row.published]
    claims = claims[claims["claim_after"] > 0]
    share = after = _NAN
    unit = ""
    if len(claims):
        claim = rows_of(claims.tail(1))[0]
        after, unit = claim["claim_after"], claim["claim_unit"]
        shares = {rung.variant: rung.share for rung in ladder(family)}
        share = shares.get(row.published) or _NAN
        if row.before or math.isnan(share):
            share = after / claim["claim_before"]
    return {
        "published": 1 / share,
        "published_before": after / share,
        "published_after": after,
        "published_unit": unit,
    }


def _measured(family: FamilyView, row: OverviewRow) -> dict[str, Any]:
    """Return the measured speed-up of the published change, on the first problem that has one."""
    before = row.before or family.reference
    for problem in dict.fromkeys((*row.problems, family.ladder_problem)):
        if problem in family.against:
            reached = _factor(family.on(problem), row.published, before)
            if reached.value > 0 and reached.basis == "measured":
                break
    else:
        reached, problem = Factor(), ""
    return {
        "measured": reached.value,
        "measured_low": reached.low,
        "measured_high": reached.high,
        "measured_on": problem,
    }


def _counted(family: FamilyView, row: OverviewRow, problem: str) -> dict[str, Any]:
    """Return the counter in today's release, and the sufficient count, if the latter is less.

    The sufficient count is the one that the family declares, or else the counter in our variant.
    """
    table = family.counters
    table = table[(table["problem"] == problem) & (table["name"] == row.counter)]
    found = table.set_index("variant")
    done, *enough = (
        found[column].get(name, _NAN)
        for column, name in (
            ("value", row.today),
            ("enough", row.today),
            ("value", row.ours),
            ("value", row.best),
        )
    )
    least = next((value for value in enough if not math.isnan(value)), _NAN)
    if done > least:
        return {"counter": row.counter, "done": done, "enough": least}
    return {"counter": "", "done": _NAN, "enough": _NAN}


def _decision(cells: Mapping[str, Mapping[str, Any]], row: OverviewRow) -> str:
    ours, today = cells.get(row.ours), cells.get(row.today)
    if not ours or not today or not ours["fingerprint"] or not today["fingerprint"]:
        return ""
    if ours["fingerprint"] == today["fingerprint"]:
        return "same"
    return "different" if ours["decision"] == "different" else "own"


def _gap(cells: Mapping[str, Mapping[str, Any]], variant: str) -> float:
    cell = cells.get(variant)
    return float(cell["gap"]) if cell and cell["status"] == "ok" else _NAN
