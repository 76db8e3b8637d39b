"""The page and the figure of a series of releases or commits."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reports.core import canvas
from reports.core.canvas import BLUE, GREY, GRID, Drawing, colour_of
from reports.core.formatting import amount, number, plural
from reports.core.page import CaptionedTable, Page, Section
from reports.series import View, commits_table, findings, main_table, rows

# The greatest load average per core at which CPU times are not called noisy.
_QUIET = 1.1


def data(views: Sequence[View]) -> pd.DataFrame:
    """Return a row for each release or commit of a series, on each problem."""
    return pd.DataFrame([row for view in views for row in rows(view)])


def page(views: Sequence[View], table: pd.DataFrame, drawing: Drawing | None, command: str) -> Page:
    """Return the page of a series; `table` has its rows, and `command` made it."""
    library, kind = views[0].declared.library, views[0].kind.removesuffix("s")
    sections = []
    for place, view in enumerate(views, start=1):
        main = main_table(view)
        shown = [CaptionedTable(main)] if main.rows else []
        if view.kind == "commits":
            every = commits_table(view, rows(view), *view.declared.figures)
            shown.append(CaptionedTable(every, "All commits, the oldest first."))
        slug = f"problem-{place}"
        sections.append(Section(slug, view.problem, tables=shown, remarks=findings(view)))
    how = Section("how", "How it was measured", how_measured(views), remarks=[f"`{command}`"])
    return Page(
        name=library,
        heading=f"{library}, {kind} by {kind}",
        lead=[],
        opening=Section("overview", "Overview", drawings=[drawing] if drawing else []),
        sections=[*sections, how],
        data={"history": table},
    )


def how_measured(views: Sequence[View]) -> str:
    """Describe how the releases or commits of a series were measured."""
    view = views[-1]
    where = view.runs[-1].cell.environment
    packages = ", ".join(f"{name} {version}" for name, version in where.packages.items())
    told = (
        f"Each of the {view.kind} ran in a child process of its own on Python {where.python} with "
        f"{packages or 'no other package'}, on {where.cpu} ({where.cores} cores). Calls are Python "
        "calls, built-in functions included; they are exact. "
    )
    turns = max(view.turns for view in views)
    if not turns:
        return f"{told}CPU times were not measured."
    load = max(run.cell.environment.load or 0.0 for view in views for run in view.runs)
    noisy = "" if load <= _QUIET else ", so the times are noisy: compare counts"
    return (
        f"{told}CPU times are medians of up to {plural(turns, 'turn')}; their parts are by the "
        f"shares in one plan. The load was at most {load:g} a core{noisy}."
    )


def draw(views: Sequence[View], table: pd.DataFrame) -> Drawing | None:
    """Draw the calls of each part on each problem, and CPU times of releases if they were timed.

    Return None if fewer than two points of each problem ran.
    """
    panels: list[tuple[View, str]] = []
    for view in views:
        if len(view.ran) > 1:
            panels += [(view, part) for part in view.parts] + [(view, "")] * bool(view.turns)
    if not panels:
        return None
    with canvas.style():
        figure = canvas.blank_figure(2.6 * len(panels))
        for place, (view, part) in enumerate(panels, start=1):
            axes = figure.add_subplot(len(panels), 1, place)
            if part:
                _draw_calls(axes, view, part)
            else:
                _draw_times(axes, view)
            names = dict(enumerate(run.point.date or run.name for run in view.runs))
            axes.set_xlabel(canvas.short(view.problem, 60))
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _, n=names: n.get(x, "")))
            axes.grid(axis="y")
        caption = (
            f"Calls of one plan, exact, on a logarithmic axis; a step of a factor of "
            f"{number(views[0].least, trim=True)} or more is named. Grey did not run."
        )
        title = f"{views[0].declared.library}: calls by {views[0].kind.removesuffix('s')}"
        return canvas.finish(figure, "history", title, caption, table)


def _draw_calls(axes: Axes, view: View, part: str) -> None:
    """Draw the calls of a part as a curve, with the name of each large step at the top."""
    places = {run.point.id: place for place, run in enumerate(view.runs)}
    values = [run.value(f"{part}_calls") for run in view.ran]
    look: dict[str, Any] = {"lw": 1.2, "ms": 3, "drawstyle": "steps-post"}
    colour = colour_of(view.parts.index(part))
    axes.plot([places[run.point.id] for run in view.ran], values, "o-", color=colour, **look)
    for place, run in enumerate(view.runs):
        if not run.is_ok:
            axes.axvspan(place - 0.5, place + 0.5, color=GRID, linewidth=0)
    axes.set_ylim(min(values) / 1.6, max(values) * 1.6)
    canvas.log_axis(axes.yaxis, amount)
    axes.set_ylabel(f"calls of {view.declared.parts[part]}")
    for step in view.steps:
        place = places.get(step.after.point.id, -1)
        if part in view.changed_parts(step) and place >= 0:
            axes.axvline(place, color=GREY, linewidth=0.6, linestyle=":")
            label = f" x {number(step.factor(f'{part}_calls'), 2)} {step.after.name[:7]}"
            at_top = axes.get_xaxis_transform()
            axes.text(place, 1.0, label, transform=at_top, rotation=60, fontsize=6.5)


def _draw_times(axes: Axes, view: View) -> None:
    """Draw the median and the range of each run's CPU time."""
    for place, run in enumerate(view.runs):
        if run.is_ok and (spent := run.cell.cpu_s):
            ends = [spent.median - min(spent.samples)], [max(spent.samples) - spent.median]
            axes.errorbar(place, spent.median, ends, fmt="o", color=BLUE, capsize=3, markersize=4)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: canvas.write_time(tick)))
    axes.set_ylabel(f"CPU time, {plural(view.turns, 'turn')}")
