"""The output of `shardbench plan` and `shardbench explain`: plans, remedies, explanations."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract.planning import Remedies, Section
from harness.model.cell import RankTable
from harness.model.ids import CellId
from harness.planning.plan import Baseline, Explained, Planned
from reports.core.formatting import figure, gap, markdown, number, seconds
from reports.core.table import (
    Entry,
    Table,
    TableColumn,
    as_markdown,
    bar,
    code,
    numbers,
    table_of,
    text,
)
from reports.core.terminal import as_terminal
from shardbench.display import listed

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS = 64
_AT_EACH_END = 8
_WIDEST_WORD = 17


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
    today, ours = _figure(baseline.value, unit), _figure(plan.quality[plan.first.name], unit)
    return f"{baseline.planner}'s own plan: {today}; this plan: {ours}."


def _figure(value: float, unit: str) -> str:
    return f"{number(float(value), 5, trim=True)} {unit}".rstrip()


def _headline(plan: Planned) -> str:
    first = plan.first
    unit = "" if first.unit in first.name.split("_") else first.unit
    parts = [f"{first.name} {_figure(plan.quality[first.name], unit)}"]
    if plan.bound and not math.isnan(share := plan.bound.gap(plan.quality)):
        bound = _figure(plan.quality[plan.bound.name], unit)
        parts += [f"bound {bound}", f"gap {gap(share)}"]
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
    heavy = 1 + ranks.columns.index(ranks.bar)
    rows: list[tuple[Any, ...]] = [(rank, *row) for rank, row in enumerate(ranks.rows)]
    left_out = len(rows) - 2 * _AT_EACH_END
    if len(rows) > _MOST_ROWS and not all_ranks:
        rows.sort(key=lambda row: -row[heavy])
        between = zip(*(row[1:] for row in rows[_AT_EACH_END:-_AT_EACH_END]), strict=True)
        middle = ("...", *(median(values) for values in between))
        rows = [*rows[:_AT_EACH_END], middle, *rows[-_AT_EACH_END:]]

    def heaviness(row: Sequence[Any]) -> Entry:
        if row[0] == "...":
            return Entry(f"{left_out:,} ranks between: medians")
        return Entry("", row[heavy])

    columns = (numbers(title, place, figure) for place, title in enumerate(titles, start=1))
    return table_of(rows, numbers("rank", 0, str), *columns, bar(ranks.bar, heaviness))


def remedies_document(reason: Exception, remedies: "Remedies[object, object]") -> dict[str, Any]:
    """Return the reason for having no decision, and the remedies, as a JSON document."""
    names = ("name", "unit", "now", "sufficient", "proven", "gap", "changes", "rating")
    return {
        "plan": None,
        "reason": str(reason),
        "causes": list(remedies.causes),
        "remedies": [
            {name: getattr(remedy, name) for name in names} for remedy in remedies.remedies
        ],
        "findings": list(remedies.findings),
    }


def remedies_shown(remedies: "Remedies[object, object]", unit: str) -> RenderableType:
    """Render the causes, the remedies with proofs and plans' first qualities, and the findings."""
    parts = [listed(remedies.causes)] if remedies.causes else []
    if remedies.remedies:
        title = "Each of these changes is enough alone; `shardbench plan --fix N` plans with it:"
        changes = (remedy.sentence(unit) for remedy in remedies.remedies)
        parts += [Text(title, style="bold"), listed(changes, "{}.")]
    return Group(*parts, *[listed(remedies.findings)] * bool(remedies.findings))


def explanation_shown(explained: Explained) -> RenderableType:
    """Render an explanation: a headline, its sentences, then its tables."""
    parts: list[RenderableType] = [Text(_title(explained), style="bold")]
    parts.append(listed(explained.explanation.sentences))
    for section in explained.explanation.sections:
        parts += ["", as_terminal(_table(section), section.title)]
        if section.remarks:
            parts.append(listed(section.remarks, style="dim"))
    return Group(*parts)


def explanation_markdown(explained: Explained) -> str:
    """Return an explanation as Markdown."""
    lines = [f"# {markdown(_title(explained))}", ""]
    lines += [f"- {markdown(sentence)}" for sentence in explained.explanation.sentences]
    for section in explained.explanation.sections:
        lines += ["", f"## {markdown(section.title)}", "", as_markdown(_table(section))]
        if section.remarks:
            lines += ["", *(f"- {markdown(remark)}" for remark in section.remarks)]
    return "\n".join(lines) + "\n"


def _title(explained: Explained) -> str:
    against = f" against {explained.against}" if explained.against else ""
    return f"{explained.cell}{against}, planned in {seconds(explained.planning_s, trim=True)}"


def _table(section: Section) -> Table:
    return table_of(section.rows, *(_column(section, n) for n in range(len(section.columns))))


def _column(section: Section, place: int) -> TableColumn:
    """Return column `place`, as numbers if any value is a number or all end in %, else as text."""
    values = [row[place] for row in section.rows]
    is_numeric = any(isinstance(value, int | float) for value in values)
    if is_numeric or all(str(value or "")[-1:] in "%" for value in values):
        return numbers(section.columns[place], place, _small_or_figure)
    return text(section.columns[place], place, least=_WIDEST_WORD if place else 0)


def _small_or_figure(value: float) -> str:
    return number(float(value), 2, trim=True) if abs(value) < 0.01 else figure(value)
