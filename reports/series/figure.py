"""The figure of a series: call counts by commit as a curve, or calls and CPU time by release."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from harness.series.steps import Step
from reports.core.drawing import canvas
from reports.core.drawing.canvas import GREY, PALE, Drawing, colour_of
from reports.core.formatting import amount, number, plural
from reports.series.view import View, makers, span_of

SLUG = "commits"
"""The beginning of the ids in the figure of commits, and of their rows in the page."""

_MOST_MODULES = 4
_LEGEND: dict[str, Any] = {"columnspacing": 1.0, "handlelength": 1.2, "handletextpad": 0.5}
_ROW_INCHES, _AROUND_INCHES = 0.26, 1.05

_HEIGHT = 2.7
_MOST_TICKS = 8
_ROWS = 5


def draw(views: Sequence[View], data: pd.DataFrame) -> Drawing | None:
    """Draw a series: releases with a row of axes per problem, commits with one per part of a call.

    Return None without a release that runs, or with fewer than two commits that run.
    """
    if views[0].kind == "commits":
        return _draw_commits(views[0], data)
    return _draw_releases([view for view in views if view.ran], data)


def _draw_releases(views: Sequence[View], data: pd.DataFrame) -> Drawing | None:
    if not views:
        return None
    declared, part = views[0].declared, views[0].parts[0]
    modules = _modules(views)
    heights = [_ROW_INCHES * len(view.ran) + _AROUND_INCHES for view in views]
    with canvas.style():
        figure = canvas.blank_figure(sum(heights) + 0.3)
        grid = figure.subplots(len(views), 2, squeeze=False, height_ratios=heights)
        for (left, right), view in zip(grid, views, strict=True):
            _draw_makers(left, view, modules)
            _draw_times(right, view)
        for axes, place in zip(grid[0], ("outside lower left", "outside lower right"), strict=True):
            handles, labels = axes.get_legend_handles_labels()
            look: dict[str, Any] = {"loc": place, "ncols": len(labels), **_LEGEND}
            figure.legend(handles, labels, **look)
        title = f"{declared.library}: calls and CPU time by release"
        caption = (
            f"Left: Python calls of {part}, exact, by the module that makes them. Right: CPU time "
            f"of one plan, the median of the turns of each release; {part}, with its range, is by "
            "its share in one plan."
        )
        return canvas.finish(figure, "history", title, caption, data)


def _modules(views: Sequence[View]) -> list[str]:
    """Return up to four modules, ordered by their largest share of the calls in any release."""
    most: dict[str, float] = {}
    for view in views:
        for run in view.ran:
            made = makers(run, view.parts[0])
            whole = sum(made.values())
            for module, calls in made.items():
                most[module] = max(most.get(module, 0.0), calls / whole)
    return sorted(most, key=lambda module: -most[module])[:_MOST_MODULES]


def _draw_makers(axes: Axes, view: View, modules: Sequence[str]) -> None:
    part = view.parts[0]
    made = [makers(run, part) for run in view.ran]
    others = [sum(v for module, v in calls.items() if module not in modules) for calls in made]
    start = [0] * len(made)
    for position, module in enumerate([*modules, "others"]):
        is_last = position == len(modules)
        widths = others if is_last else [calls.get(module, 0) for calls in made]
        colour = PALE if is_last else colour_of(position)
        axes.barh(range(len(made)), widths, 0.7, start, color=colour, label=module)
        start = [a + b for a, b in zip(start, widths, strict=True)]
    canvas.name_rows(axes, [run.name for run in view.ran])
    axes.set_title(f"{canvas.short(view.problem, 44)}\ncalls of {part}", loc="left")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: amount(value)))
    axes.grid(axis="x")


def _draw_times(axes: Axes, view: View) -> None:
    part = view.parts[0]
    canvas.name_rows(axes, [run.name for run in view.ran])
    axes.set_title(f"\nCPU time, {plural(view.turns, 'turn')}", loc="left")
    axes.grid(axis="x")
    labels: tuple[str | None, str | None] = (part, "rest")
    for place, run in enumerate(view.ran):
        profiled, rest = span_of(run, part), span_of(run, part, rest=True)
        if profiled is None or rest is None:
            continue
        median, low, high = profiled
        span, bars = [[median - low], [high - median]], {"elinewidth": 0.9, "capsize": 2}
        axes.barh(place, median, 0.7, xerr=span, color=colour_of(5), error_kw=bars, label=labels[0])
        axes.barh(place, rest.median, 0.7, median, color=PALE, label=labels[1])
        labels = (None, None)
    if labels == (None, None):
        canvas.linear_time(axes)


def _draw_commits(view: View, data: pd.DataFrame) -> Drawing | None:
    """Draw the calls of each commit, one plot per part; a point links to its row in the page."""
    if len(view.ran) < 2:
        return None
    with canvas.style():
        figure = canvas.blank_figure(_HEIGHT * len(view.parts) + 0.4)
        grid = figure.subplots(len(view.parts), 1, squeeze=False, sharex=True)
        for place, (axes, part) in enumerate(zip(grid[:, 0], view.parts, strict=True)):
            _draw_curve(axes, view, part, colour_of(place))
        _name_dates(grid[-1, 0], view)
        caption = (
            "Calls of one plan, exact, on a logarithmic axis. A step is named where it changes "
            f"them by a factor of {number(view.least, trim=True)} or more. Grey are commits "
            "that do not run."
        )
        title = f"{view.declared.library}: calls by commit"
        return canvas.finish(figure, SLUG, title, caption, data)


def _draw_curve(axes: Axes, view: View, part: str, colour: str) -> None:
    name = f"{part}_calls"
    ran = [(place, run.value(name), run.name) for place, run in enumerate(view.runs) if run.is_ok]
    places, values = [place for place, *_ in ran], [value for _, value, _ in ran]
    axes.set_yscale("log")
    axes.plot(places, values, color=colour, linewidth=1.2, drawstyle="steps-post")
    points = axes.scatter(places, values, s=9, color=colour, linewidths=0, zorder=3)
    points.set_urls([f"#{name}" for *_, name in ran])
    for place, run in enumerate(view.runs):
        if not run.is_ok:
            axes.axvspan(place - 0.5, place + 0.5, color="#E4E4E4", linewidth=0)
    low, high = min(values), max(values)
    # Leave room above the curve for the names of steps.
    axes.set_ylim(low / 1.6, high * (high / low) ** 0.6 * 3)
    ticks = [tick for tick in canvas.ROUND_NUMBERS if low / 1.6 <= tick <= high * 2.2]
    canvas.set_ticks(axes.yaxis, ticks[:: math.ceil(len(ticks) / 6)] or [low], amount)
    axes.set_title(f"calls of {view.declared.parts[part]}", loc="left")
    axes.grid(axis="y")
    shown = [step for step in view.large if name in view.factors(step)]
    _name_steps(axes, [(_place(view, step), step) for step in shown], name)


def _place(view: View, step: Step) -> float:
    """Return the x position of a step's commit; an undrawn commit lies between its neighbours."""
    places = {run.point.id: place for place, run in enumerate(view.runs)}
    commit = step.after.point
    if commit.id in places:
        return places[commit.id]
    later = (place for place, run in enumerate(view.runs) if run.point.date > commit.date)
    return next(later, len(view.runs)) - 0.5


def _name_steps(axes: Axes, placed: list[tuple[float, Step]], name: str) -> None:
    """Write each step's factor at the top, linked to its commit, on one of five cycling lines."""
    for turn, (place, step) in enumerate(sorted(placed, key=lambda item: item[0])):
        axes.axvline(place, color=GREY, linewidth=0.6, linestyle=":")
        axes.text(
            place,
            0.985 - 0.08 * (turn % _ROWS),
            f"x {number(step.factor(name), 2)} {step.after.name[:7]}",
            transform=axes.get_xaxis_transform(),
            ha="right" if place > 0.85 * axes.get_xlim()[1] else "left",
            va="top",
            fontsize=6.5,
            url=f"#{step.after.name}",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.3},
        )


def _name_dates(axes: Axes, view: View) -> None:
    dates = [run.point.date for run in view.runs]
    axes.xaxis.set_major_locator(MaxNLocator(_MOST_TICKS, integer=True))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda place, _: dates[int(place)] if 0 <= place < len(dates) else "")
    )
    axes.set_xlabel("commits that touch the paths that decide, one after another")
