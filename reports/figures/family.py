"""The figures of one family, each drawn from one view."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.text import Annotation

from reports.figures.canvas import (
    BLUE,
    GREY,
    PALE,
    VERMILION,
    Drawing,
    colour_of,
    finish,
    hatch_of,
    label_points,
    linear_time,
    log_time,
    make_room,
    name_rows,
    new_figure,
    style,
    text_colour_on,
    write_beside,
)
from reports.figures.growth import draw_growth
from reports.figures.ranks import draw_ranks
from reports.figures.speedups import draw_against
from reports.formatting import gap, listing, number, percent, quantity, seconds
from reports.views.family import FamilyView, ladder, phase_times, rows_of, tradeoff

_MUCH_LONGER = 1.5


def figures(family: FamilyView) -> dict[str, list[Drawing]]:
    """Draw what the results allow, by section; `sizes` has a figure per sweep."""
    with style():
        return {
            "ladder": list(_ladder(family)),
            "against": list(draw_against(family)),
            "sizes": list(draw_growth(family)),
            "quality": list(_quality(family)),
            "ranks": list(draw_ranks(family)),
            "phases": list(_phases(family)),
        }


def _ladder(family: FamilyView) -> Iterator[Drawing]:
    table = ladder(family)
    if table["ratio"].notna().sum() < 2:
        return
    figure, axes = new_figure(0.9 + 0.62 * len(table))
    claimed = table["published_share"].notna().any()
    for place, row in enumerate(rows_of(table)):
        if claimed and math.isnan(row["published_share"]):
            write_beside(axes, 0.0, place - 0.2, "no figure published", GREY)
        elif claimed:
            axes.barh(place - 0.2, row["published_share"], 0.34, color=PALE, edgecolor=GREY)
            write_beside(axes, row["published_share"], place - 0.2, _claim(row), GREY)
        middle = place + 0.2 if claimed else place
        if math.isnan(row["ratio"]):
            write_beside(axes, 0.0, middle, row["outcome"], VERMILION)
            continue
        axes.barh(middle, row["ratio"], 0.34, color=BLUE, edgecolor=BLUE)
        end, text = row["ratio"], number(row["ratio"])
        if not math.isnan(row["low"]):
            reach = [[row["ratio"] - row["low"]], [row["high"] - row["ratio"]]]
            axes.errorbar(row["ratio"], middle, xerr=reach, color="black", capsize=3, linewidth=1)
            end, text = row["high"], f"{text} ({number(row['low'])} to {number(row['high'])})"
        write_beside(
            axes, end, middle, "1, the reference" if row["outcome"] == "reference" else text
        )
    name_rows(axes, table["variant"].tolist())
    axes.grid(axis="x")
    axes.set_xlabel(f"share of {family.reference}'s cost (lower is better)")
    if claimed:
        figure.legend(
            handles=[
                Line2D([], [], linewidth=7, color=PALE, label="published"),
                Line2D([], [], linewidth=7, color=BLUE, label="measured CPU time, with interval"),
            ],
            loc="outside upper left",
            ncols=2,
        )
    make_room(axes)
    caption = f"Measured on `{family.ladder_problem}`."
    if claimed:
        told = listing(list(dict.fromkeys(filter(None, table["published_conditions"]))))
        caption += (
            " Published shares are what is left of the ladder's start, step by step; they were "
            f"obtained elsewhere{f': {told}' if told else ''}."
        )
    yield finish(figure, f"{family.slug}-ladder", "Claimed and measured", caption, table)


def _claim(row: dict[str, Any]) -> str:
    if math.isnan(row["published_after"]):
        return "the published start"
    unit = row["published_unit"]
    steps = f"{quantity(row['published_before'], unit)} → {quantity(row['published_after'], unit)}"
    return f"{number(row['published_share'])} ({steps})"


def _quality(family: FamilyView) -> Iterator[Drawing]:
    table = tradeoff(family)
    if len(table) < 2:
        return
    first = rows_of(table)[0]
    figure, axes = new_figure(4.0)
    for row in rows_of(table):
        index = family.variants.index(row["variant"])
        own = row["decision"] not in ("reference", "same")
        axes.plot(
            row["cpu_s"],
            row["quality"],
            marker="D" if own else "o",
            markersize=7,
            color=colour_of(index),
            markeredgecolor="black",
            markeredgewidth=0.6,
        )
    bounds = sorted(table["bound"].dropna(), reverse=first["better"] == "lower")[:1]
    for strongest in bounds:
        axes.axhline(strongest, color="black", linestyle="--", linewidth=1)
    axes.margins(x=0.22, y=0.18)
    log_time(axes, "x")
    axes.set_xlabel("planning time (CPU), log scale")
    unit = f" [{first['unit']}]" if first["unit"] else ""
    axes.set_ylabel(f"{first['name']}{unit}, {first['better']} is better")
    axes.grid(True)
    figure.legend(
        handles=[
            Line2D(
                [], [], marker="o", linestyle="none", color=GREY, label="the reference's decision"
            ),
            Line2D([], [], marker="D", linestyle="none", color=GREY, label="another decision"),
            *(Line2D([], [], linestyle="--", color="black", label="proven bound") for _ in bounds),
        ],
        loc="outside upper left",
        ncols=3,
    )
    points = [(row["cpu_s"], row["quality"], _point(row)) for row in rows_of(table)]
    label_points(axes, points, bounds)
    caption = f"On `{family.quality_problem}`. Variants that decide the same stand on one line."
    if bounds:
        caption += " In brackets the gap to the bound, which no decision can pass."
    yield finish(figure, f"{family.slug}-quality", "Time against quality", caption, table)


def _point(row: dict[str, Any]) -> str:
    in_brackets = "" if math.isnan(row["gap"]) else f" ({gap(row['gap'])})"
    return f"{row['variant']}{in_brackets}"


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
    figure, axes = new_figure(1.1 + 0.36 * len(spent))
    left = pd.Series(0.0, index=spent.index)
    for index, phase in enumerate(spent.columns):
        colour = PALE if phase == "other" else colour_of(index)
        bars = axes.barh(
            range(len(spent)),
            spent[phase],
            0.7,
            left=left,
            color=colour,
            edgecolor="white",
            linewidth=0.8,
            label=phase,
            hatch="" if phase == "other" else hatch_of(index),
        )
        wide = spent[phase] > 0.08 * totals.max()
        labels = (spent[phase] / totals).map(percent).where(wide, "")
        written = axes.bar_label(
            bars, labels, label_type="center", fontsize=8, color=text_colour_on(colour)
        )
        for text in filter(Annotation.get_text, written):
            text.set_bbox({"facecolor": colour, "edgecolor": "none", "pad": 1.0})
        left = left + spent[phase]
    for place, total in enumerate(totals):
        write_beside(axes, total, place, seconds(total))
    name_rows(axes, list(spent.index))
    axes.grid(axis="x")
    axes.set_xlabel("CPU time of a call")
    figure.legend(loc="outside upper left", ncols=min(7, len(spent.columns)), columnspacing=1.2)
    make_room(axes)
    linear_time(axes)
    caption = (
        f"On `{family.phase_problem}`. The shares were observed in one call each, and are scaled "
        "to what the timed calls took; small ones stand in the table."
    )
    if left_out:
        caption += f" Too long to be drawn beside the others: {listing(left_out)}."
    yield finish(figure, f"{family.slug}-phases", "Where the time goes", caption, table)
