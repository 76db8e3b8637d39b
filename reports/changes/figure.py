"""The figure of time ratios in two results files, with their intervals, largest change first."""

import math
from collections.abc import Iterator
from typing import Any

from harness.measuring.timing.verdict import CONFIDENCE
from reports.changes.data import Changes
from reports.core.drawing import canvas
from reports.core.drawing.canvas import BLUE, LONGEST_NAME, VERMILION, Drawing
from reports.core.formatting import plural
from reports.family.data import rows_of

_MOST_CELLS = 24
_MARKS = (("a", BLUE, "o", -0.16, "A"), ("b", VERMILION, "D", 0.16, "B"))


def draw_ratios(changes: Changes) -> Iterator[Drawing]:
    """Draw the ratios that can be compared between the files, the largest change first."""
    table = changes.both[changes.both["moved"] != ""]
    if table.empty:
        return
    step = (table["ratio_b"] / table["ratio_a"]).map(math.log).abs()
    beyond = table["moved"] != "within"
    order = step.where(beyond, step - 1e6).sort_values(ascending=False, kind="stable").index
    drawn = table.loc[order].head(_MOST_CELLS)
    with canvas.style():
        figure, axes = canvas.new_figure(1.0 + 0.42 * len(drawn))
        for place, row in enumerate(rows_of(drawn)):
            for which, colour, marker, shift, _ in _MARKS:
                ratio, low, high = (row[f"{name}_{which}"] for name in ("ratio", "low", "high"))
                look = {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.2}
                edge = {"markeredgecolor": "black", "markeredgewidth": 0.5}
                canvas.draw_interval(axes, place + shift, ratio, (low, high), **look, **edge)
        axes.axvline(1.0, color="black", linewidth=0.8)
        canvas.log_number(axes)
        scale = "share of the compared variant's time, log scale"
        canvas.name_rows(axes, [_name(row) for row in rows_of(drawn)], scale)
        keys = (
            canvas.key(f"{file}, with interval", color=c, marker=m) for _, c, m, _, file in _MARKS
        )
        canvas.legend_above(figure, *keys)
        caption = (
            f"Ratios of both files with their intervals at {100 * CONFIDENCE:.0f} %; a star marks "
            "what moved beyond both."
        )
        if len(drawn) < len(table):
            caption += f" {plural(len(table) - len(drawn), 'cell')} that moved less: in the table."
        yield canvas.finish(figure, "ratios", "Ratios in A and B", caption, table)


def _name(row: dict[str, Any]) -> str:
    planner, _, problem = str(row["cell"]).partition("@")
    star = "* " if row["moved"] != "within" else ""
    return f"{star}{canvas.short(planner, LONGEST_NAME - 2)}\n{canvas.short(problem, LONGEST_NAME)}"
