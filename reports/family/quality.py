"""Planning time against the quality of decisions, as figure and tables."""

import pandas as pd

from reports.core.formatting import gap, seconds
from reports.core.frames import DIFFERENT
from reports.core.table import Table, TableColumn, code, numbers, table_of, text
from reports.family.data import FamilyView, Row, ratios, rows_of

_TRADEOFF = [
    *("variant", "cpu_s", "ratio", "decision", "quality", "bound", "gap"),
    *("name", "unit", "better"),
]


def tradeoff(family: FamilyView) -> pd.DataFrame:
    """Return time and first quality on `quality_problem`: a row per variant that has both.

    Variants that fail to make a required decision are left out: their times are not comparable.
    """
    cells = family.cells[family.cells["problem"] == family.quality_problem]
    cells = cells[(cells["cpu_s"] > 0) & (cells["outcome"] != DIFFERENT)]
    best = family.primary_qualities[["cell", "value", "name", "unit", "better"]]
    table = cells.merge(best.rename(columns={"value": "quality"}), on="cell")
    decisions = [family.whose_decision(row) for row in rows_of(table)]
    return table.assign(ratio=ratios(table), decision=decisions)[_TRADEOFF]


def quality_table(family: FamilyView) -> Table:
    """Return a row per variant with a quality on `quality_problem`: time and all qualities."""
    rated = set(family.primary_qualities["cell"])
    on_it = family.on(family.quality_problem).values()
    return table_of(
        (cell for cell in on_it if cell["cell"] in rated),
        code("variant"),
        text("decision"),
        numbers("CPU time", "cpu_s", seconds),
        numbers("share", "ratio"),
        *quality_columns(family, family.quality_problem),
    )


def quality_columns(
    family: FamilyView, problem: str = "", first: bool = False
) -> list[TableColumn]:
    """Return columns for a family's qualities on one problem or all, and for the gap.

    With `first` there are only the first quality, its bound and the gap. Rows need a `variant`,
    and without the argument `problem` also a `problem`.
    """
    held = family.qualities
    if problem:
        held = held[held["problem"] == problem]
    units = dict(zip(held["name"], held["unit"], strict=True))
    bound = family.bound
    if first:
        shown = {next(iter(units), ""), bound.name if bound else ""}
        units = {name: unit for name, unit in units.items() if name in shown}
    if bound:  # the last column shows the gap already, in per cent
        units.pop("gap", None)
    values = held.set_index(["problem", "variant", "name"])["value"].to_dict()
    gaps = family.cells.set_index(["problem", "variant"])["gap"].to_dict()

    def place(row: Row) -> tuple[str, str]:
        return problem or row["problem"], row["variant"]

    def column(name: str, unit: str) -> TableColumn:
        title = f"{name} [{unit}]" if unit else name
        return numbers(title, lambda row: values.get((*place(row), name)))

    gap_column = numbers("gap", lambda row: gaps.get(place(row)), gap)
    return [*(column(*unit) for unit in units.items()), *[gap_column] * bool(bound)]
