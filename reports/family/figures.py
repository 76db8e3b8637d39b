"""The figures of a family: the ladder, speed-ups, times by size, qualities, ranks, and fronts."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.lines import Line2D

from harness.measuring.timing.verdict import CONFIDENCE
from harness.model.quality import Bound, Quality, find_bound
from harness.planning.plan import Planned
from reports.core import canvas
from reports.core.canvas import BLUE, GREY, MARKERS, ORANGE, Drawing, Mark
from reports.core.formatting import (
    count,
    gap,
    hundredths,
    listing,
    names,
    number,
    seconds,
    with_interval,
)
from reports.family.data import FamilyView, Row, rows_of
from reports.family.ladder import claim_text, ladder
from reports.family.quality import tradeoff
from reports.family.ranks import ranks
from reports.family.speedups import factor, speedups

_MOST_STEPS = 400


def figures(family: FamilyView) -> dict[str, list[Drawing]]:
    """Return the figures that the results allow, by section; `sizes` has a figure per sweep."""
    with canvas.style():
        return {
            "ladder": list(draw_ladder(family)),
            "against": list(draw_speedups(family)),
            "sizes": list(draw_growth(family)),
            "quality": list(draw_quality(family)),
            "ranks": list(draw_ranks(family)),
            "front": list(draw_fronts(family)),
        }


def draw_ladder(family: FamilyView) -> Iterator[Drawing]:
    """Draw published and measured shares of the ladder, if two or more rungs were measured."""
    table = ladder(family)
    if table["ratio"].notna().sum() < 2:
        return
    rows = rows_of(table)
    looks = {"published": (GREY, "s"), "measured CPU time": (BLUE, "o")}
    series = {
        "published": [Mark(row["published_share"], claim_text(row)) for row in rows],
        "measured CPU time": [_ladder_mark(row) for row in rows],
    }
    caption = f"Measured on `{family.ladder_problem}`, with {100 * CONFIDENCE:.0f} % intervals."
    title = "Claimed and measured"
    if table["published_share"].notna().any():
        conditions = listing(list(dict.fromkeys(filter(None, table["published_conditions"]))))
        caption += (
            " Published shares are what remains of the ladder's start, step by step; they were "
            f"measured elsewhere{f': {conditions}' if conditions else ''}."
        )
    else:
        title = "Measured shares"
        del series["published"], looks["published"]
    figure, axes = canvas.new_figure(0.9 + 0.3 * len(series) * len(rows))
    scale = f"share of {family.reference}'s cost, log scale (lower is better)"
    canvas.draw_rows(axes, [row["variant"] for row in rows], series, looks, scale)
    canvas.legend_above(figure, looks)
    yield canvas.finish(figure, f"{family.slug}-ladder", title, caption, table)


def _ladder_mark(row: Row) -> Mark:
    if math.isnan(row["ratio"]):
        return Mark(math.nan, str(row["outcome"]))
    if row["outcome"] == "reference":
        return Mark(row["ratio"], "1, the reference")
    text = with_interval(row["ratio"], row["low"], row["high"])
    return Mark(row["ratio"], text, row["low"], row["high"])


def draw_speedups(family: FamilyView) -> Iterator[Drawing]:
    """Draw the rows of `speedups`, if any speed-up is known."""
    table = speedups(family)
    drawn = table[table["variant"] != table["against"]]
    if not drawn["times_as_fast"].notna().any():
        return
    compared_with = drawn["against"].unique()
    whom = compared_with[0] if len(compared_with) == 1 else "the variant compared with"
    caption = (
        f"CPU time of {names(compared_with)} over that of each variant, from calls that took "
        f"turns, with {100 * CONFIDENCE:.0f} % intervals."
    )
    if drawn["projected"].any():
        caption += (
            " Hollow marks are no measurements: the call compared with was stopped, and its "
            "projection is set over the variant's wall time."
        )
    figure, axes = canvas.new_figure(0.7 + 0.4 * len(drawn))
    rows = rows_of(drawn)
    shown = [f"{row['variant']}\n{canvas.short(row['problem'], 40)}" for row in rows]
    marks = {whom: [_speedup_mark(row) for row in rows]}
    scale = f"times as fast as {whom}, log scale"
    canvas.draw_rows(axes, shown, marks, {whom: (BLUE, "o")}, scale)
    title = f"Times as fast as {whom}"
    yield canvas.finish(figure, f"{family.slug}-against", title, caption, table)


def _speedup_mark(row: Row) -> Mark:
    value, low, high = row["times_as_fast"], row["low"], row["high"]
    if math.isnan(value):
        return Mark(math.nan, row["outcome"])
    text = factor(row) if row["projected"] else with_interval(value, low, high)
    return Mark(value, text, low, high, row["projected"])


def draw_growth(family: FamilyView) -> Iterator[Drawing]:
    """Draw a figure per sweep: CPU time against size, with exponents and stopped calls."""
    groups = family.sweep_points.groupby(["sweep", "size_name"], sort=False)
    for place, ((sweep, size), group) in enumerate(groups, start=1):
        fits = family.exponents.set_index(["sweep", "size_name"]).loc[[(sweep, size)]]
        fits = fits.set_index("variant")
        figure, axes = canvas.new_figure(4.2)
        keys: list[Line2D] = []
        for variant in group["variant"].unique():
            index = family.variants.index(variant)
            look: dict[str, Any] = {"color": canvas.colour_of(index), "markersize": 5}
            marker = MARKERS[index % len(MARKERS)]
            line = group[group["variant"] == variant].sort_values("size")
            stopped = line["stopped"].astype(bool)
            ended = line["projected"].astype(bool) | stopped
            axes.plot("size", "seconds", data=line[~ended], marker=marker, linewidth=1.5, **look)
            if ended.any():
                tail = pd.concat([line[~ended].tail(1), line[ended]])
                axes.plot("size", "seconds", "--", data=tail, linewidth=1, color=look["color"])
                hollow = {**look, "markerfacecolor": "white", "linestyle": "none"}
                for which, shape in ((ended & ~stopped, marker), (stopped, "^")):
                    axes.plot("size", "seconds", data=line[which], marker=shape, **hollow)
            keys.append(canvas.key(_fit_label(variant, fits.loc[variant]), marker=marker, **look))
        for budget in sorted(group["budget_s"].dropna().unique()):
            label = f"budget of a call, {seconds(budget, trim=True)} (wall)"
            look = {"color": GREY, "linestyle": ":", "linewidth": 1}
            keys.append(axes.axhline(budget, label=label, **look))
        canvas.log_axis(axes.yaxis, canvas.write_time, canvas.TIMES)
        canvas.log_axis(axes.xaxis, count)
        axes.set(xlabel=str(size), ylabel="planning time (CPU)")
        axes.grid(True)
        caption = f"`{sweep}`. In brackets the 95 % interval of the exponent."
        look = {"color": GREY, "linestyle": "--", "markerfacecolor": "white"}
        if group["projected"].any():
            keys.append(canvas.key("projection, not measured", marker="o", **look))
            caption += (
                " Hollow points are projections of calls that passed their budget, from the "
                "progress they had made; they take no part in the fit."
            )
        if group["stopped"].any():
            keys.append(canvas.key("stopped there, takes longer", marker="^", **look))
            caption += (
                " Hollow triangles are calls that were stopped at their budget with no progress "
                "to project from."
            )
        figure.legend(handles=keys, loc="outside right upper")
        data = group.merge(fits[["exponent", "low", "high"]], left_on="variant", right_index=True)
        name = "Planning time against size"
        yield canvas.finish(figure, f"{family.slug}-size-{place}", name, caption, data)


def _fit_label(variant: str, fit: "pd.Series[float]") -> str:
    if math.isnan(fit["exponent"]):
        return variant
    power = with_interval(fit["exponent"], fit["low"], fit["high"], hundredths)
    return f"{variant}\nsize^{power}"


def draw_quality(family: FamilyView) -> Iterator[Drawing]:
    """Draw the first quality against planning time, if variants differ in quality."""
    table = tradeoff(family)
    if table["quality"].nunique() < 2:
        return
    rows = rows_of(table)
    first = rows[0]
    figure, axes = canvas.new_figure(4.0)
    for row in rows:
        index = family.variants.index(row["variant"])
        look: dict[str, Any] = {"color": canvas.colour_of(index), "linestyle": "none"}
        distance = "" if math.isnan(row["gap"]) else f" ({gap(row['gap'])})"
        look |= {"marker": MARKERS[index % len(MARKERS)], "label": f"{row['variant']}{distance}"}
        axes.plot(row["cpu_s"], row["quality"], markersize=7, **look)
    caption = (
        f"On `{family.quality_problem}`. Variants with the same decision are at the same height."
    )
    for bound in sorted(table["bound"].dropna(), reverse=first["better"] == "lower")[:1]:
        axes.axhline(bound, color="black", linestyle="--", linewidth=1, label="proven bound")
        caption += " In brackets the gap to the bound, which no decision can pass."
    axes.margins(0.1)
    canvas.log_axis(axes.xaxis, canvas.write_time, canvas.TIMES)
    unit = f" [{first['unit']}]" if first["unit"] else ""
    axes.set(xlabel="planning time (CPU), log scale")
    axes.set_ylabel(f"{first['name']}{unit}, {first['better']} is better")
    axes.grid(True)
    figure.legend(loc="outside right upper")
    yield canvas.finish(figure, f"{family.slug}-quality", "Time against quality", caption, table)


def draw_ranks(family: FamilyView) -> Iterator[Drawing]:
    """Draw the plans side by side: a row of steps per figure, with the capacity as a line."""
    view = ranks(family)
    if view is None or not view.names:
        return
    figure = canvas.blank_figure(0.9 + 1.75 * len(view.names))
    shape = (len(view.names), len(view.variants))
    grid = figure.subplots(*shape, sharex="col", sharey="row", squeeze=False)
    group = math.ceil(view.ranks / _MOST_STEPS)
    for row, name in zip(grid, view.names, strict=True):
        for axes, variant in zip(row, view.variants, strict=True):
            found = view.of(variant, name)
            values = found["value"].to_numpy()
            tops = [values[start : start + group].max() for start in range(0, len(values), group)]
            edges = [place * group - 0.5 for place in range(len(tops) + 1)]
            axes.stairs(tops, edges, fill=True, color=BLUE, baseline=min(0.0, values.min()))
            heaviest = int(values.argmax())
            axes.plot(heaviest, values[heaviest], "v", color=ORANGE, markeredgecolor="black")
            if not math.isnan(capacity := float(found["capacity"].max())):
                axes.axhline(capacity, color="black", linestyle="--", linewidth=1)
            said = f"most {number(float(values.max()))}, mean {number(float(values.mean()))}"
            plan = f"{canvas.short(variant, 34)}\n" if name == view.names[0] else ""
            axes.set_title(f"{plan}{said}", loc="left")
            axes.grid(axis="y")
        row[0].set_ylabel(canvas.short(name, 34))
    for axes in grid[-1]:
        axes.set_xlabel("rank")
    limit = canvas.key("capacity of a rank", color="black", linestyle="--")
    limits = [limit] if view.figures["capacity"].notna().any() else []
    canvas.legend_above(figure, {"a rank": (BLUE, "s"), "the heaviest": (ORANGE, "v")}, *limits)
    caption = (
        f"The plans of {names(view.variants)} on `{view.problem}`, by the planner's own estimate."
    )
    if group > 1:
        caption += f" A step is the heaviest of {group} neighbours."
    if len(view.variants) == 1:
        caption += " No variant has a different plan to compare it with."
    name = f"{family.slug}-ranks"
    yield canvas.finish(figure, name, "The load of each rank", caption, view.figures)


def draw_front(plans: Sequence[Planned]) -> Drawing:
    """Draw the plans of `shardbench plan`: their first quality against the GiB that they move."""
    first, bound = plans[0].first, plans[0].bound
    files = [f"plan-{number}.json" for number in range(1, len(plans) + 1)]
    data = pd.DataFrame({"plan": files, "GiB moved": [plan.moved_gib for plan in plans]})
    data[first.name] = [plan.quality[first.name] for plan in plans]
    if bound is not None:
        data[bound.name] = [plan.quality[bound.name] for plan in plans]
        data["gap"] = [bound.gap(plan.quality) for plan in plans]
    with canvas.style():
        return _front("front", data, first, bound, f"`{plans[0].cell}`, from the plan before it.")


def draw_fronts(family: FamilyView) -> Iterator[Drawing]:
    """Draw the front of the largest problem: plans that move some GiB of a measured plan."""
    cells = [cell for cell in family.records if len(cell.front) > 1 and cell.qualities]
    if not cells:
        return
    cell = max(cells, key=lambda cell: (cell.size or 0.0, len(cell.front)))
    first, bound = cell.qualities[0], find_bound(cell.qualities)
    points = [f"point {number}" for number in range(1, len(cell.front) + 1)]
    data = pd.DataFrame({"plan": points, "GiB moved": [point.moved_gib for point in cell.front]})
    data[first.name] = [point.value for point in cell.front]
    if any(point.bound is None for point in cell.front):
        bound = None
    if bound is not None:
        data[bound.name] = [point.bound for point in cell.front]
    caption = f"Starting from the plan of `{cell.id}`: the quality of plans that move some of it."
    yield _front(f"{family.slug}-front", data, first, bound, caption)


def _front(
    slug: str, data: pd.DataFrame, first: Quality, bound: Bound | None, caption: str
) -> Drawing:
    """Draw a quality and its bound, if any, against the GiB moved."""
    figure, axes = canvas.new_figure(3.6)
    moved = data["GiB moved"]
    axes.plot(moved, data[first.name], "o-", color=BLUE, label="a plan that was found", ms=5)
    if bound is not None:
        label = "no plan that moves as much can be below"
        axes.plot(moved, data[bound.name], "_--", color=GREY, label=label, ms=5)
    unit = f" ({first.unit})" if first.unit else ""
    axes.set(xlabel="GiB moved", ylabel=f"{first.name}{unit}")
    if data[first.name].max() > 1.2 * data[first.name].min():  # else the line would look flat
        axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.grid(True)
    figure.legend(loc="outside upper left", ncols=2)
    return canvas.finish(figure, slug, "Quality against what moves", caption, data)
