"""The time of a call by phase, as figure and table."""

import math
from collections.abc import Iterator

import pandas as pd
from matplotlib.text import Annotation

from reports.core.drawing import canvas
from reports.core.drawing.canvas import HATCHES, PALE, Drawing
from reports.core.drawing.labels import text_colour_on
from reports.core.formatting import listing, percent, seconds
from reports.core.frames import DIFFERENT
from reports.core.table import Entry, Table, TableColumn, code, numbers, table_of
from reports.family.data import FamilyView, Row, rows_of

_MUCH_LONGER = 1.5


def phase_times(family: FamilyView) -> pd.DataFrame:
    """Return the CPU seconds of each phase on `phase_problem`, a row per variant and phase.

    `share` is from one observed call, which is slower than timed calls. `seconds` is that share of
    a timed call, `observed_s` the time in the observed call. Variants with a different decision
    are left out, as in `tradeoff`.
    """
    cells = family.cells[family.cells["problem"] == family.phase_problem]
    cells = cells[cells["outcome"] != DIFFERENT]
    phases = family.phases[family.phases["cell"].isin(cells["cell"])]
    phases = phases.rename(columns={"seconds": "observed_s"})
    observed = phases.groupby("cell")["observed_s"].transform("sum")
    # An empty column has the text type of the cells' ids, which cannot be multiplied.
    whole = phases["cell"].map(_timed(cells)).astype("float64").fillna(observed)
    phases = phases.assign(seconds=phases["share"] * whole)
    return phases[["variant", "name", "seconds", "share", "observed_s"]].reset_index(drop=True)


def _timed(cells: pd.DataFrame) -> "pd.Series[float]":
    """Return the CPU seconds of a timed call by cell: ratio times the reference's time, if known.

    A ratio is from paired calls, so this product is free of the machine's drift.
    """
    reference = cells.loc[cells["outcome"] == "reference", "cpu_s"]
    paired = cells["ratio"] * (reference.iloc[0] if len(reference) else math.nan)
    timed: pd.Series[float] = paired.fillna(cells["cpu_s"]).set_axis(cells["cell"])
    return timed


def draw_phases(family: FamilyView) -> Iterator[Drawing]:
    """Draw the CPU time of a call by phase, a bar per variant."""
    table = phase_times(family)
    if table.empty:
        return
    spent = table.pivot(index="variant", columns="name", values="seconds").fillna(0.0)
    spent = spent.loc[table["variant"].unique(), table["name"].unique()]
    took = spent.max() > 0
    spent = spent.loc[:, took] if took.any() else spent
    totals = spent.sum(axis=1)
    rungs = totals[totals.index.isin(family.rungs)]
    drawn = totals <= _MUCH_LONGER * (rungs.max() if len(rungs) else totals.max())
    left_out = [f"`{name}` ({seconds(total)})" for name, total in totals[~drawn].items()]
    spent, totals = spent[drawn], totals[drawn]
    figure, axes = canvas.new_figure(1.1 + 0.36 * len(spent))
    left = pd.Series(0.0, index=spent.index)
    for index, phase in enumerate(spent.columns):
        colour = PALE if phase == "other" else canvas.colour_of(index)
        bars = axes.barh(
            range(len(spent)),
            spent[phase],
            0.7,
            left=left,
            color=colour,
            edgecolor="white",
            linewidth=0.8,
            label=phase,
            hatch="" if phase == "other" else HATCHES[index % len(HATCHES)],
        )
        for name, bar in zip(spent.index, bars, strict=True):
            canvas.mark(bar, f"{name}, {phase}: {seconds(spent.loc[name, phase])}")
        wide = spent[phase] > 0.08 * totals.max()
        labels = (spent[phase] / totals).map(percent).where(wide, "")
        written = axes.bar_label(
            bars, labels, label_type="center", fontsize=8, color=text_colour_on(colour)
        )
        for text in filter(Annotation.get_text, written):
            text.set_bbox({"facecolor": colour, "edgecolor": "none", "pad": 1.0})
        left = left + spent[phase]
    for place, total in enumerate(totals):
        canvas.write_right_of(axes, total, place, seconds(total))
    canvas.name_rows(axes, list(spent.index), "CPU time of a call")
    figure.legend(loc="outside upper left", ncols=min(7, len(spent.columns)), columnspacing=1.2)
    canvas.make_room(axes)
    canvas.linear_time(axes)
    caption = (
        f"On `{family.phase_problem}`. The shares were observed in one call each, and are scaled "
        "to the timed calls; small ones are in the table."
    )
    if left_out:
        caption += f" Too long to draw next to the others: {listing(left_out)}."
    yield canvas.finish(figure, f"{family.slug}-phases", "Where the time goes", caption, table)


def phases_table(family: FamilyView) -> Table:
    """Return a row per variant, with the seconds and the share of every phase."""
    times = phase_times(family)
    whole = times.groupby("variant", sort=False)["seconds"].sum()
    spent = {(row["variant"], row["name"]): row for row in rows_of(times)}

    def column(name: str) -> TableColumn:
        return numbers(name, lambda row: _phase(spent.get((row[0], name))))

    return table_of(
        whole.items(),
        code("variant", 0),
        numbers("whole", 1, seconds),
        *map(column, times["name"].unique()),
    )


def _phase(row: Row | None) -> Entry | None:
    if row is None:
        return None
    return Entry(f"{seconds(row['seconds'])} ({percent(row['share'])})", row["seconds"])
