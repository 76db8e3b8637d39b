"""Planning time against the quality of decisions, as figure and tables."""

import math
from collections.abc import Iterator

import pandas as pd

from reports.core.drawing import canvas
from reports.core.drawing.canvas import GREY, Drawing
from reports.core.drawing.labels import label_points
from reports.core.formatting import gap, quantity, seconds
from reports.core.frames import DIFFERENT
from reports.family.data import FamilyView, ratios, rows_of

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


def draw_quality(family: FamilyView) -> Iterator[Drawing]:
    """Draw the first quality against planning time, if variants differ in quality."""
    table = tradeoff(family)
    if table["quality"].nunique() < 2:
        return
    first = rows_of(table)[0]
    figure, axes = canvas.new_figure(4.0)
    for row in rows_of(table):
        index = family.variants.index(row["variant"])
        (point,) = axes.plot(
            row["cpu_s"],
            row["quality"],
            marker="o" if row["decision"] in ("reference", "same") else "D",
            markersize=7,
            color=canvas.colour_of(index),
            markeredgecolor="black",
            markeredgewidth=0.6,
        )
        value = quantity(row["quality"], row["unit"])
        canvas.mark(point, f"{row['variant']}: {seconds(row['cpu_s'])}, {row['name']} {value}")
    bounds = sorted(table["bound"].dropna(), reverse=first["better"] == "lower")[:1]
    for strongest in bounds:
        axes.axhline(strongest, color="black", linestyle="--", linewidth=1)
    axes.margins(x=0.22, y=0.18)
    canvas.log_time(axes, "x")
    axes.set_xlabel("planning time (CPU), log scale")
    unit = f" [{first['unit']}]" if first["unit"] else ""
    axes.set_ylabel(f"{first['name']}{unit}, {first['better']} is better")
    axes.grid(True)
    look = {"linestyle": "none", "color": GREY}
    dashes = [canvas.key("proven bound", linestyle="--", color="black") for _ in bounds]
    own = canvas.key("another decision", marker="D", **look)
    canvas.legend_above(
        figure, canvas.key("the reference's decision", marker="o", **look), own, *dashes
    )
    gaps = table["gap"].map(lambda share: "" if math.isnan(share) else f" ({gap(share)})")
    points = zip(table["cpu_s"], table["quality"], table["variant"] + gaps, strict=True)
    label_points(axes, list(points), bounds)
    caption = (
        f"On `{family.quality_problem}`. Variants with the same decision are at the same height."
    )
    if bounds:
        caption += " In brackets the gap to the bound, which no decision can pass."
    yield canvas.finish(figure, f"{family.slug}-quality", "Time against quality", caption, table)
