"""The output of `shardbench plan`: a plan's quality and the load of each rank."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from harness.model.cell import RankTable
from harness.model.ids import CellId
from harness.planning.baseline import Baseline
from harness.planning.plan import Planned
from reports.core.formatting import figure, gap, number
from reports.core.table import Entry, Table, bar, code, numbers, table_of
from reports.core.terminal import as_terminal

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS = 64
_AT_EACH_END = 8


def shown(plan: Planned, all_ranks: bool) -> RenderableType:
    """Render a plan: a headline, and a row with a bar for each rank.

    If there are more than 64 ranks, it has only the 8 heaviest and lightest unless `all_ranks`,
    and the medians of the ranks between.
    """
    title = Text(str(plan.cell), style="bold")
    return Group(title, Text(_headline(plan)), "", as_terminal(_ranks(plan.ranks, all_ranks)))


def document(plan: Planned, baseline: Baseline | None, file: Path) -> dict[str, Any]:
    """Return a plan's figures, and the file that has the plan, as a JSON document."""
    share = plan.bound.gap(plan.quality) if plan.bound else math.nan
    return {
        "cell": str(plan.cell),
        "plan": str(file),
        "quality": dict(plan.quality),
        "unit": plan.first.unit,
        "gap": None if math.isnan(share) else share,
        "moved_gib": plan.moved_gib,
        "planning_s": plan.planning_s,
        "changes": list(plan.changes),
        "baseline": baseline and {"system": baseline.planner, plan.first.name: baseline.value},
    }


def front_shown(cell: CellId, data: "pd.DataFrame") -> RenderableType:
    """Render the table of plans by the bytes they move, which holds the data of their figure."""
    columns = [
        code(name) if name == "plan" else numbers(name, write=gap if name == "gap" else figure)
        for name in map(str, data)
    ]
    rows = data.round({"gap": 6}).to_dict("records")
    return Group(Text(str(cell), style="bold"), "", as_terminal(table_of(rows, *columns)))


def gain_shown(plan: Planned, baseline: Baseline) -> str:
    """Return a sentence that compares a plan with today's planner's, or says why it cannot."""
    if baseline.value is None:
        return baseline.reason
    unit = plan.first.unit
    theirs, mine = (
        _figure(value, unit) for value in (baseline.value, plan.quality[plan.first.name])
    )
    return f"{baseline.planner}'s own plan: {theirs}; this plan: {mine}."


def _figure(value: float, unit: str) -> str:
    return f"{number(float(value), 5, trim=True)} {unit}".rstrip()


def _headline(plan: Planned) -> str:
    first = plan.first
    unit = "" if first.unit in first.name.split("_") else first.unit

    def figure_of(name: str) -> str:
        return _figure(plan.quality[name], unit)

    parts = [f"{first.name} {figure_of(first.name)}"]
    if plan.bound and not math.isnan(share := plan.bound.gap(plan.quality)):
        parts += [f"bound {figure_of(plan.bound.name)}", f"gap {gap(share)}"]
        if plan.bound.is_reached(plan.quality):
            parts.append("proven best")
    if plan.moved_gib is not None:
        parts.append(f"moves {figure(plan.moved_gib)} GiB")
    return ", ".join(parts)


def _ranks(ranks: RankTable, all_ranks: bool) -> Table:
    titles = [
        name if capacity is None else f"{name}\nof {figure(capacity)}"
        for name, capacity in zip(ranks.columns, ranks.capacities, strict=True)
    ]
    heavy = ranks.columns.index(ranks.bar)
    rows: list[tuple[Any, ...]] = [(rank, *row) for rank, row in enumerate(ranks.rows)]
    if len(rows) > _MOST_ROWS and not all_ranks:
        rows.sort(key=lambda row: -row[1 + heavy])
        between = zip(*(row[1:] for row in rows[_AT_EACH_END:-_AT_EACH_END]), strict=True)
        middle = ("...", *(median(values) for values in between))
        rows = [*rows[:_AT_EACH_END], middle, *rows[-_AT_EACH_END:]]
    left_out = len(ranks.rows) - 2 * _AT_EACH_END

    def heaviness(row: Sequence[Any]) -> Entry:
        if row[0] == "...":
            return Entry(f"{left_out:,} ranks between: medians")
        return Entry("", row[1 + heavy])

    columns = (numbers(title, place, figure) for place, title in enumerate(titles, start=1))
    return table_of(rows, numbers("rank", 0, str), *columns, bar(ranks.bar, heaviness))
