"""The figures of one family, each drawn from one view."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.text import Annotation

from reports.core.drawing import canvas
from reports.core.drawing.canvas import BLUE, GREY, HATCHES, PALE, VERMILION, Drawing
from reports.core.drawing.contrast import text_colour_on
from reports.core.drawing.labels import label_points
from reports.core.formatting import change, gap, listing, number, percent, quantity, seconds
from reports.family.data import FamilyView, rows_of
from reports.family.front_figure import draw_fronts
from reports.family.growth_figure import draw_growth
from reports.family.ranks_figure import draw_ranks
from reports.family.speedups_figure import draw_speedups
from reports.family.variants import ladder, phase_times, tradeoff

_MUCH_LONGER = 1.5


def figures(family: FamilyView) -> dict[str, list[Drawing]]:
    """Draw what the results allow, by section; `sizes` has a figure per sweep."""
    with canvas.style():
        return {
            "ladder": list(_ladder(family)),
            "against": list(draw_speedups(family)),
            "sizes": list(draw_growth(family)),
            "quality": list(_quality(family)),
            "ranks": list(draw_ranks(family)),
            "front": list(draw_fronts(family)),
            "phases": list(_phases(family)),
        }


def _ladder(family: FamilyView) -> Iterator[Drawing]:
    table = ladder(family)
    if table["ratio"].notna().sum() < 2:
        return
    figure, axes = canvas.new_figure(0.9 + 0.62 * len(table))
    claimed = table["published_share"].notna().any()
    for place, row in enumerate(rows_of(table)):
        if claimed and math.isnan(row["published_share"]):
            canvas.write_beside(axes, 0.0, place - 0.2, _beside_the_ladder(row), color=GREY)
        elif claimed:
            bars = axes.barh(place - 0.2, row["published_share"], 0.34, color=PALE, edgecolor=GREY)
            canvas.mark(bars[0], f"{row['variant']}, published: {_claim(row)}")
            canvas.write_beside(axes, row["published_share"], place - 0.2, _claim(row), color=GREY)
        middle = place + 0.2 if claimed else place
        if math.isnan(row["ratio"]):
            canvas.write_beside(axes, 0.0, middle, row["outcome"], color=VERMILION)
            continue
        said = "1, the reference" if row["outcome"] == "reference" else number(row["ratio"])
        ends = (row["low"], row["high"])
        look: dict[str, Any] = {"height": 0.34, "color": BLUE, "edgecolor": BLUE}
        canvas.draw_bar(axes, middle, row["ratio"], ends, said, row["variant"], **look)
    canvas.name_rows(axes, table["variant"].tolist())
    axes.grid(axis="x")
    axes.set_xlabel(f"share of {family.reference}'s cost (lower is better)")
    caption = f"Measured on `{family.ladder_problem}`."
    if claimed:
        measured = canvas.key("measured CPU time, with interval", linewidth=7, color=BLUE)
        canvas.legend_above(figure, canvas.key("published", linewidth=7, color=PALE), measured)
        told = listing(list(dict.fromkeys(filter(None, table["published_conditions"]))))
        caption += (
            " Published shares are what is left of the ladder's start, step by step; they were "
            f"obtained elsewhere{f': {told}' if told else ''}."
        )
    canvas.make_room(axes)
    yield canvas.finish(figure, f"{family.slug}-ladder", "Claimed and measured", caption, table)


def _beside_the_ladder(row: dict[str, Any]) -> str:
    """Return what stands where nothing published counts from the ladder's start."""
    if not math.isnan(row["published_after"]):
        step = change(row["published_before"], row["published_after"], row["published_unit"])
        return f"{step} published, on another problem"
    if row["source"] == "shardbench":
        return "ours, not upstream"
    return f"no figure published ({row['source']})" if row["source"] else "no figure published"


def _claim(row: dict[str, Any]) -> str:
    if math.isnan(row["published_after"]):
        return "the published start"
    step = change(row["published_before"], row["published_after"], row["published_unit"])
    return f"{number(row['published_share'])} ({step})"


def _quality(family: FamilyView) -> Iterator[Drawing]:
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
        told = quantity(row["quality"], row["unit"])
        canvas.mark(point, f"{row['variant']}: {seconds(row['cpu_s'])}, {row['name']} {told}")
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
    caption = f"On `{family.quality_problem}`. Variants that decide the same stand on one line."
    if bounds:
        caption += " In brackets the gap to the bound, which no decision can pass."
    yield canvas.finish(figure, f"{family.slug}-quality", "Time against quality", caption, table)


def _phases(family: FamilyView) -> Iterator[Drawing]:
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
        canvas.write_beside(axes, total, place, seconds(total))
    canvas.name_rows(axes, list(spent.index))
    axes.grid(axis="x")
    axes.set_xlabel("CPU time of a call")
    figure.legend(loc="outside upper left", ncols=min(7, len(spent.columns)), columnspacing=1.2)
    canvas.make_room(axes)
    canvas.linear_time(axes)
    caption = (
        f"On `{family.phase_problem}`. The shares were observed in one call each, and are scaled "
        "to what the timed calls took; small ones stand in the table."
    )
    if left_out:
        caption += f" Too long to be drawn beside the others: {listing(left_out)}."
    yield canvas.finish(figure, f"{family.slug}-phases", "Where the time goes", caption, table)
