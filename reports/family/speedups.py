"""Speed-ups over another variant than the reference, as figure and tables."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib.patches import Patch

from harness.measuring.timing.verdict import CONFIDENCE
from reports.core.drawing import canvas
from reports.core.drawing.canvas import GREY, LONGEST_NAME, Drawing
from reports.core.formatting import names, number
from reports.family.data import FamilyView, ratios, rows_of

_SPEEDUPS = [
    *("problem", "against", "variant", "cpu_s", "times_as_fast", "low", "high", "projected"),
    *("outcome", "decision", "quality", "bound", "gap"),
]


def speedups(family: FamilyView) -> pd.DataFrame:
    """Return speed-ups on the problems with another variant than the reference as baseline.

    A row per cell of such problems. `low` and `high` are the interval of `times_as_fast`. If the
    baseline (`against`) was stopped, `times_as_fast` is from its projection, without interval, and
    `projected` is true.
    """
    cells = family.cells[family.cells["against"] != family.reference]
    stopped = cells[(cells["variant"] == cells["against"]) & (cells["status"] == "over budget")]
    # An empty column has the type of texts, which cannot be divided.
    projection = cells["problem"].map(stopped.set_index("problem")["projection_s"]).astype(float)
    projected = (projection / cells["wall_s"]).where(
        (cells["status"] == "ok") & (projection > 0) & (cells["wall_s"] > 0)
    )
    best = family.primary_qualities.set_index("cell")["value"]
    table = cells.assign(
        times_as_fast=projected.fillna(1 / ratios(cells)),
        low=1 / cells["ratio_high"],
        high=1 / cells["ratio_low"],
        projected=projected.notna(),
        decision=[family.whose_decision(row) for row in rows_of(cells)],
        quality=cells["cell"].map(best).astype(float),
    )
    places = {problem: place for place, problem in enumerate(family.against)}
    table = table.sort_values("problem", key=lambda names: names.map(places), kind="stable")
    return table[_SPEEDUPS].reset_index(drop=True)


def factor(row: Mapping[str, Any]) -> str:
    """Write the speed-up in a row of `speedups`, marked if it is projected."""
    text = number(row["times_as_fast"])
    return f"≥ {text} (projected)" if row["projected"] else text


def draw_speedups(family: FamilyView) -> Iterator[Drawing]:
    """Draw the rows of `speedups` as bars, grouped by problem, if any speed-up is known."""
    table = speedups(family)
    drawn = table[table["variant"] != table["against"]]
    if not drawn["times_as_fast"].notna().any():
        return
    groups = drawn.groupby("problem", sort=False)
    figure, axes = canvas.new_figure(1.0 + 0.3 * len(drawn) + 0.36 * len(groups))
    least = min(drawn[["times_as_fast", "low"]].min().min(), 1.0)
    low = 1.0 if least == 1.0 else max(least * 0.85, 1e-6)
    axes.set_xscale("log")
    axes.set_xlim(low, max(drawn["times_as_fast"].max() * 1.05, 2.0))
    rows: dict[float, str] = {}
    place = 0.0
    for problem, group in groups:
        at_left: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "fontsize": 8}
        canvas.write_right_of(axes, 0, place, str(problem), color=GREY, **at_left)
        place += 0.9
        for row in rows_of(group):
            colour = canvas.colour_of(family.variants.index(row["variant"]))
            look: dict[str, Any] = {"color": colour, "edgecolor": colour, "height": 0.62}
            if row["projected"]:
                look |= {"color": "white", "linestyle": "--", "linewidth": 1.2}
            reached, ends = row["times_as_fast"], (row["low"], row["high"])
            shown = row["outcome"] if math.isnan(reached) else factor(row)
            canvas.draw_bar(axes, place, reached, shown, row["variant"], ends, start=1, **look)
            rows[place] = canvas.short(row["variant"], LONGEST_NAME)
            place += 1
        place += 0.3
    axes.set_yticks(list(rows), list(rows.values()))
    axes.set_ylim(place - 0.6, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.axvline(1.0, color=GREY, linewidth=0.8)
    compared_with = drawn["against"].unique()
    whom = compared_with[0] if len(compared_with) == 1 else "the variant compared with"
    axes.set_xlabel(f"times as fast as {whom}, log scale")
    label = f"{100 * CONFIDENCE:.0f} % interval"
    keys: list[Any] = [canvas.key(label, color="black", marker="|", markersize=7)]
    caption = (
        f"CPU time of {names(compared_with)} over that of each variant, from calls that took turns."
    )
    if drawn["projected"].any():
        label = "from a projection, not measured"
        keys.append(Patch(facecolor="white", edgecolor=GREY, linestyle="--", label=label))
        caption += (
            " Outlined bars are no measurements: the call compared with was stopped, and its "
            "projection is set over the variant's wall time."
        )
    canvas.legend_above(figure, *keys)
    canvas.make_room(axes)
    canvas.log_number(axes)
    yield canvas.finish(
        figure, f"{family.slug}-against", f"Times as fast as {whom}", caption, table
    )
