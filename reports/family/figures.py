"""The figures of a family: the ladder, times by size, qualities, ranks, and fronts."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from harness.measuring.statements import gap_of
from harness.measuring.timing.verdict import CONFIDENCE
from harness.model.cell import Cell
from harness.model.quality import Bound, Quality, find_bound
from harness.planning.plan import Planned
from reports.core import canvas
from reports.core.canvas import BLUE, GREY, MARKERS, ORANGE, Drawing, Mark
from reports.core.columns import compared, first_quality, median
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
from reports.family.data import FamilyView
from reports.family.growth import Point, Series
from reports.family.ranks import rank_view

_MOST_STEPS = 400
_GROWTH = [
    *("sweep", "size_name", "variant", "size", "seconds", "projected", "stopped", "budget_s"),
    *("exponent", "low", "high"),
]


def figures(family: FamilyView) -> dict[str, list[Drawing]]:
    """Return the figures that the results allow, by section; `sizes` has a figure per sweep."""
    with canvas.style():
        return {
            "ladder": list(draw_ladder(family)),
            "sizes": list(draw_growth(family)),
            "quality": list(draw_quality(family)),
            "ranks": list(draw_ranks(family)),
            "front": list(draw_fronts(family)),
        }


def draw_ladder(family: FamilyView) -> Iterator[Drawing]:
    """Draw published and measured shares of the ladder, if two or more rungs were measured."""
    rungs = family.ladder
    measured = [_share(family, rung.cell) for rung in rungs]
    if sum(not math.isnan(mark.value) for mark in measured) < 2:
        return
    caption = f"Measured on `{family.ladder_problem}`, with {100 * CONFIDENCE:.0f} % intervals."
    title = "Measured shares"
    looks = {"measured CPU time": (BLUE, "o")}
    series = {"measured CPU time": measured}
    if any(rung.share for rung in rungs):
        title = "Claimed and measured"
        looks = {"published": (GREY, "s"), **looks}
        published = [Mark(rung.share or math.nan, rung.published) for rung in rungs]
        series = {"published": published, **series}
        conditions = dict.fromkeys(rung.claim.conditions for rung in rungs if rung.claim)
        said = listing([condition for condition in conditions if condition])
        caption += (
            " Published shares are what remains of the ladder's start, step by step; they were "
            f"measured elsewhere{f': {said}' if said else ''}."
        )
    figure, axes = canvas.new_figure(0.9 + 0.3 * len(series) * len(rungs))
    scale = f"share of {family.reference}'s cost, log scale (lower is better)"
    canvas.draw_rows(axes, [rung.variant for rung in rungs], series, looks, scale)
    canvas.legend_above(figure, looks)
    frame = _cells(family, family.ladder_problem, [rung.variant for rung in rungs])
    frame["published_share"] = [rung.share for rung in rungs]
    yield canvas.finish(figure, f"{family.slug}-ladder", title, caption, frame)


def _cells(family: FamilyView, problem: str, variants: list[str]) -> pd.DataFrame:
    """Return the cells of some variants on a problem as data for users, a row per variant."""
    frame = family.cells[family.cells["problem"] == problem].set_index("variant")
    return frame.reindex(variants).reset_index()


def _share(family: FamilyView, cell: Cell | None) -> Mark:
    """Return the measured share of the reference's CPU time, or the reason why there is none."""
    if cell is None or cell.against != family.reference:
        return Mark(math.nan, "not run")
    if cell.outcome == "reference":
        return Mark(1.0, "1, the reference")
    ratio = compared(cell)
    if ratio is None:
        return Mark(math.nan, cell.outcome)
    ends = ratio.interval
    return Mark(ratio.value, with_interval(ratio.value, *ends), *ends)


def draw_growth(family: FamilyView) -> Iterator[Drawing]:
    """Draw a figure per sweep: CPU time against size, with exponents and stopped calls."""
    sweeps: dict[tuple[str, str], list[Series]] = {}
    for series in family.series:
        sweeps.setdefault((series.sweep, series.size_name), []).append(series)
    for place, ((sweep, size_name), lines) in enumerate(sweeps.items(), start=1):
        figure, axes = canvas.new_figure(4.2)
        keys: list[Line2D] = []
        for line in lines:
            index = family.variants.index(line.variant)
            look: dict[str, Any] = {"color": canvas.colour_of(index), "markersize": 5}
            marker = MARKERS[index % len(MARKERS)]
            _plot(axes, line.measured, marker=marker, linewidth=1.5, **look)
            ended = [point for point in line.points if not point.is_measured]
            if ended:
                tail = sorted([*line.measured[-1:], *ended], key=lambda point: point.size)
                _plot(axes, tail, linestyle="--", linewidth=1, color=look["color"])
                hollow = {**look, "markerfacecolor": "white", "linestyle": "none"}
                _plot(axes, [p for p in ended if p.is_projected], marker=marker, **hollow)
                _plot(axes, [p for p in ended if p.is_stopped], marker="^", **hollow)
            keys.append(canvas.key(_fit_label(line), marker=marker, **look))
        points = [point for line in lines for point in line.points]
        for budget in sorted({p.budget_s for p in points if p.budget_s}):
            label = f"budget of a call, {seconds(budget, trim=True)} (wall)"
            look = {"color": GREY, "linestyle": ":", "linewidth": 1}
            keys.append(axes.axhline(budget, label=label, **look))
        canvas.log_axis(axes.yaxis, canvas.write_time, canvas.TIMES)
        canvas.log_axis(axes.xaxis, count)
        axes.set(xlabel=size_name, ylabel="planning time (CPU)")
        axes.grid(True)
        caption = f"`{sweep}`. In brackets the 95 % interval of the exponent."
        look = {"color": GREY, "linestyle": "--", "markerfacecolor": "white"}
        if any(point.is_projected for point in points):
            keys.append(canvas.key("projection, not measured", marker="o", **look))
            caption += (
                " Hollow points are projections of calls that passed their budget, from the "
                "progress they had made; they take no part in the fit."
            )
        if any(point.is_stopped for point in points):
            keys.append(canvas.key("stopped there, takes longer", marker="^", **look))
            caption += (
                " Hollow triangles are calls that were stopped at their budget with no progress "
                "to project from."
            )
        figure.legend(handles=keys, loc="outside right upper")
        data = pd.DataFrame(
            [
                (
                    *(sweep, size_name, line.variant, p.size, p.seconds),
                    *(p.is_projected, p.is_stopped, p.budget_s, *(line.fit or [math.nan] * 3)),
                )
                for line in lines
                for p in line.points
            ],
            columns=_GROWTH,
        )
        slug, title = f"{family.slug}-size-{place}", "Planning time against size"
        yield canvas.finish(figure, slug, title, caption, data)


def _plot(axes: Axes, points: Sequence[Point], **look: Any) -> None:
    axes.plot([point.size for point in points], [point.seconds for point in points], **look)


def _fit_label(line: Series) -> str:
    if line.fit is None:
        return line.variant
    return f"{line.variant}\nsize^{with_interval(*line.fit, hundredths)}"


def draw_quality(family: FamilyView) -> Iterator[Drawing]:
    """Draw the first quality against planning time, if variants differ in quality.

    Variants that fail to make a required decision are left out: their times are not comparable.
    """
    rated = [
        (cell, time, value)
        for cell in family.variants_on(family.quality_problem).values()
        if (time := median(cell.cpu_s)) and cell.decision != "different"
        if (value := first_quality(cell)) is not None
    ]
    if len({value for _, _, value in rated}) < 2:
        return
    first, bound = rated[0][0].qualities[0], rated[0][0].bound
    figure, axes = canvas.new_figure(4.0)
    for cell, time, value in rated:
        index = family.variants.index(cell.variant)
        look: dict[str, Any] = {"color": canvas.colour_of(index), "linestyle": "none"}
        distance = gap_of(cell)
        label = cell.variant if math.isnan(distance) else f"{cell.variant} ({gap(distance)})"
        axes.plot(
            time, value, marker=MARKERS[index % len(MARKERS)], label=label, markersize=7, **look
        )
    caption = (
        f"On `{family.quality_problem}`. Variants with the same decision are at the same height."
    )
    bounds = [c.quality[bound.name] for c, *_ in rated if bound and bound.name in c.quality]
    if bounds:
        strongest = (max if first.better == "lower" else min)(bounds)
        axes.axhline(strongest, color="black", linestyle="--", linewidth=1, label="proven bound")
        caption += " In brackets the gap to the bound, which no decision can pass."
    axes.margins(0.1)
    canvas.log_axis(axes.xaxis, canvas.write_time, canvas.TIMES)
    unit = f" [{first.unit}]" if first.unit else ""
    axes.set(xlabel="planning time (CPU), log scale")
    axes.set_ylabel(f"{first.name}{unit}, {first.better} is better")
    axes.grid(True)
    figure.legend(loc="outside right upper")
    data = _cells(family, family.quality_problem, [cell.variant for cell, *_ in rated])
    data[first.name] = [value for *_, value in rated]
    yield canvas.finish(figure, f"{family.slug}-quality", "Time against quality", caption, data)


def draw_ranks(family: FamilyView) -> Iterator[Drawing]:
    """Draw the plans side by side: a row of steps per figure, with the capacity as a line."""
    view = rank_view(family)
    if view is None or not view.figures:
        return
    figure = canvas.blank_figure(0.9 + 1.75 * len(view.figures))
    shape = (len(view.figures), len(view.plans))
    grid = figure.subplots(*shape, sharex="col", sharey="row", squeeze=False)
    group = math.ceil(view.ranks / _MOST_STEPS)
    limits: list[Line2D] = []
    for row, name in zip(grid, view.figures, strict=True):
        for axes, load in zip(row, view.loads(name), strict=True):
            starts = range(0, len(load.values), group)
            tops = [max(load.values[start : start + group]) for start in starts]
            edges = [place * group - 0.5 for place in range(len(tops) + 1)]
            axes.stairs(tops, edges, fill=True, color=BLUE, baseline=min(0.0, *load.values))
            axes.plot(load.heaviest, load.most, "v", color=ORANGE, markeredgecolor="black")
            if load.capacity is not None:
                axes.axhline(load.capacity, color="black", linestyle="--", linewidth=1)
                limits = [canvas.key("capacity of a rank", color="black", linestyle="--")]
            plan = f"{canvas.short(load.variant, 34)}\n" if name == view.figures[0] else ""
            title = f"{plan}most {number(float(load.most))}, mean {number(load.mean)}"
            axes.set_title(title, loc="left")
            axes.grid(axis="y")
        row[0].set_ylabel(canvas.short(name, 34))
    for axes in grid[-1]:
        axes.set_xlabel("rank")
    canvas.legend_above(figure, {"a rank": (BLUE, "s"), "the heaviest": (ORANGE, "v")}, *limits)
    caption = (
        f"The plans of {names(view.plans)} on `{view.problem}`, by the planner's own estimate."
    )
    if group > 1:
        caption += f" A step is the heaviest of {group} neighbours."
    if len(view.plans) == 1:
        caption += " No variant has a different plan to compare it with."
    data = pd.DataFrame(
        [
            (load.variant, rank, name, value, load.capacity)
            for name in view.figures
            for load in view.loads(name)
            for rank, value in enumerate(load.values)
        ],
        columns=["variant", "rank", "figure", "value", "capacity"],
    )
    yield canvas.finish(figure, f"{family.slug}-ranks", "The load of each rank", caption, data)


def draw_front(plans: Sequence[Planned]) -> Drawing:
    """Draw the plans of `shardbench plan`: their first quality against the GiB that they move."""
    first, bound = plans[0].first, plans[0].bound
    points = [
        (
            f"plan-{place}.json",
            plan.moved_gib,
            plan.quality[first.name],
            plan.quality.get(bound.name if bound else ""),
        )
        for place, plan in enumerate(plans, start=1)
    ]
    with canvas.style():
        return _front("front", first, bound, points, f"`{plans[0].cell}`, from the plan before it.")


def draw_fronts(family: FamilyView) -> Iterator[Drawing]:
    """Draw the front of the largest problem: plans that move some GiB of a measured plan."""
    cells = [cell for cell in family.records if len(cell.front) > 1 and cell.qualities]
    if cells:
        cell = max(cells, key=lambda cell: (cell.size or 0.0, len(cell.front)))
        points = [
            (f"point {place}", point.moved_gib, point.value, point.bound)
            for place, point in enumerate(cell.front, start=1)
        ]
        bound = find_bound(cell.qualities)
        caption = (
            f"Starting from the plan of `{cell.id}`: the quality of plans that move some of it."
        )
        yield _front(f"{family.slug}-front", cell.qualities[0], bound, points, caption)


def _front(
    slug: str,
    first: Quality,
    bound: Bound | None,
    points: Sequence[tuple[str, float | None, float, float | None]],
    caption: str,
) -> Drawing:
    """Draw points of a name, GiB moved, quality and, if all have one, bound."""
    columns = ["plan", "GiB moved", first.name, bound.name if bound else ""]
    data = pd.DataFrame(points, columns=columns)
    if bound is None or data[bound.name].isna().any():
        data, bound = data.iloc[:, :3], None
    else:
        data["gap"] = [
            bound.gap({first.name: value, bound.name: end or 0.0}) for *_, value, end in points
        ]
    figure, axes = canvas.new_figure(3.6)
    moved = data["GiB moved"]
    axes.plot(moved, data[first.name], "o-", color=BLUE, label="a plan that was found", ms=5)
    if bound:
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
