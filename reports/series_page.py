"""The page, the figure and the CSV rows of a series of releases or commits."""

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from harness.series.points import Run
from harness.series.steps import Step
from reports.core import canvas
from reports.core.canvas import BLUE, GREY, GRID, Drawing, colour_of
from reports.core.formatting import amount, count, number, plural
from reports.core.page import CaptionedTable, Finding, Page, Section
from reports.core.table import Entry, Table, TableColumn, code, numbers, table_of, text
from reports.series import View, changed_figures, findings, span_of, tables

# The greatest load average per core at which CPU times are not called noisy.
_QUIET = 1.1


def data(views: Sequence[View]) -> pd.DataFrame:
    """Return a row for each release or commit of a series, on each problem."""
    make_row = _release_row if views[0].kind == "releases" else _commit_row
    return pd.DataFrame([make_row(view, run) for view in views for run in view.runs])


def _release_row(view: View, run: Run) -> dict[str, object]:
    row: dict[str, object] = {"problem": view.problem, "release": run.name}
    if not run.is_ok:
        return row | {"not_run": run.cell.reason or run.cell.status}
    part, cell = view.parts[0], run.cell
    calls = f"{part}_calls"
    step = next((step for step in view.steps if step.after is run), None)
    row["calls"] = run.value(calls)
    row["times_previous"] = step.factor(calls) if step else math.nan
    row["times_oldest"] = Step(view.ran[0], run).factor(calls)
    for name, rest in (("profiled", False), ("rest", True)):
        if span := span_of(run, part, rest=rest):
            keys = (f"{name}_cpu_s", f"{name}_cpu_s_low", f"{name}_cpu_s_high")
            row |= dict(zip(keys, span, strict=True))
    if cell.ratio:
        row["ratio"] = cell.ratio.value
        row["ratio_low"], row["ratio_high"] = cell.ratio.interval
    decision = ("changed" if step.decision_changed else "same") if step else "first"
    return row | {
        **{name: cell.counters.get(name, 0) for name in view.declared.counters},
        **cell.quality,
        "fingerprint": cell.fingerprint or "",
        "decision": decision,
        "not_run": "",
    }


def _commit_row(view: View, run: Run) -> dict[str, object]:
    point, cell = run.point, run.cell
    return {
        "commit": point.id,
        "date": point.date,
        "title": point.title,
        "pull_request": point.pull_request,
        "status": cell.status,
        "reason": cell.reason or "",
        "same_files_as": "" if run.is_own else cell.variant,
        "fingerprint": cell.fingerprint or "",
        "cpu_s": cell.cpu_s.median if cell.cpu_s else None,
        **({name: run.value(name) for name in view.declared.figures} if run.is_ok else {}),
    }


def page(views: Sequence[View], table: pd.DataFrame, drawing: Drawing | None, command: str) -> Page:
    """Return the page of a series; `table` has its rows, and `command` made it."""
    first = views[0]
    kind = first.kind.removesuffix("s")
    sections = []
    for number_of, view in enumerate(views, start=1):
        slug = f"problem-{number_of}"
        shown = [CaptionedTable(one, name or "") for name, one in tables(view).items() if one.rows]
        if view.kind == "commits":
            shown.append(CaptionedTable(_steps_table(view), "What each step changed."))
            shown.append(CaptionedTable(_runs_table(view), "All commits, the oldest first."))
        told = [Finding("", sentence) for sentence in findings(view)]
        sections.append(Section(slug, view.problem, findings=told, tables=shown))
    how = Section("how", "How it was measured", how_measured(views), remarks=[f"`{command}`"])
    drawings = [drawing] if drawing else []
    return Page(
        name=first.declared.library,
        heading=f"{first.declared.library}, {kind} by {kind}",
        lead=[],
        opening=Section("overview", "Overview", drawings=drawings),
        sections=[*sections, how],
        data={"history": table},
    )


def _steps_table(view: View) -> Table:
    """Return a row per figure that a step changes, the newest step first."""
    rows = [
        (step, *changed)
        for step in reversed(view.steps)
        for changed in changed_figures(view.declared.figures, step)
    ]
    return table_of(
        rows,
        code("commit", lambda row: row[0].after.name),
        text("title", lambda row: _titled(view, row[0].after)),
        code("compared with", lambda row: row[0].before.name),
        code("what", 1),
        numbers("before", 2, count),
        numbers("after", 3, count),
        numbers("factor", lambda row: row[3] / row[2] if row[2] else None),
    )


def _runs_table(view: View) -> Table:
    """Return a row per commit with its calls, and why it did not run itself, if it did not."""

    def calls(name: str) -> TableColumn:
        return numbers(name, lambda run: run.value(name), count)

    def remark(run: Run) -> str:
        if not run.is_ok:
            return run.cell.reason or run.cell.status
        return "" if run.is_own else f"the files of {run.cell.variant[:9]}"

    return table_of(
        view.runs,
        code("commit", "name"),
        text("date", lambda run: run.point.date),
        *map(calls, view.declared.calls),
        text("title", lambda run: _titled(view, run)),
        text("remark", remark),
    )


def _titled(view: View, run: Run) -> Entry:
    return Entry(run.point.title, link=view.address(run))


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
    if view.kind == "commits" and view.declared.commits:
        paths = ", ".join(view.declared.commits.paths)
        return (
            f"{told}Commits that have the same files in {paths} are run once. Both sides of a step "
            "are run themselves."
        )
    turns = max(view.turns for view in views)
    if not turns:
        return f"{told}CPU times were not measured."
    load = max(run.cell.environment.load or 0.0 for view in views for run in view.runs)
    return (
        f"{told}CPU times are medians of up to {plural(turns, 'turn')}, in which the releases ran "
        "one after the other, forwards and backwards; their parts are by the shares in one plan. "
        f"The load was at most {load:g} a core"
        + ("." if load <= _QUIET else ", so the times are noisy: compare counts.")
    )


def draw(views: Sequence[View], table: pd.DataFrame) -> Drawing | None:
    """Draw the calls of each part on each problem, and CPU times of releases if they were timed.

    Return None if fewer than two points of each problem ran.
    """
    shown = [view for view in views if len(view.ran) > 1]
    panels = [(view, part) for view in shown for part in (*view.parts, *[""] * bool(view.turns))]
    if not panels:
        return None
    declared, kind = views[0].declared, views[0].kind.removesuffix("s")
    with canvas.style():
        figure = canvas.blank_figure(2.6 * len(panels))
        grid = figure.subplots(len(panels), 1, squeeze=False)
        for axes, (view, part) in zip(grid[:, 0], panels, strict=True):
            if part:
                _draw_calls(axes, view, part)
            else:
                _draw_times(axes, view)
            names = [run.point.date or run.name for run in view.runs]
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
            axes.xaxis.set_major_formatter(
                FuncFormatter(
                    lambda x, _, names=names: names[int(x)] if 0 <= x < len(names) else ""
                )
            )
            axes.grid(axis="y")
        caption = (
            f"Calls of one plan, exact, on a logarithmic axis; a step of a factor of "
            f"{number(views[0].least, trim=True)} or more is named. Grey did not run."
        )
        title = f"{declared.library}: calls by {kind}"
        return canvas.finish(figure, "history", title, caption, table)


def _draw_calls(axes: Axes, view: View, part: str) -> None:
    """Draw the calls of a part as a curve, with the name of each large step at the top."""
    name = f"{part}_calls"
    places = [place for place, run in enumerate(view.runs) if run.is_ok]
    values = [run.value(name) for run in view.ran]
    colour = colour_of(view.parts.index(part))
    axes.plot(places, values, "o-", color=colour, lw=1.2, ms=3, drawstyle="steps-post")
    for place, run in enumerate(view.runs):
        if not run.is_ok:
            axes.axvspan(place - 0.5, place + 0.5, color=GRID, linewidth=0)
    axes.set_ylim(min(values) / 1.6, max(values) * 1.6)
    canvas.log_axis(axes.yaxis, amount)
    axes.set_ylabel(f"calls of {view.declared.parts[part]}")
    axes.set_xlabel(canvas.short(view.problem, 60))
    where = {run.point.id: place for place, run in enumerate(view.runs)}
    for step in view.large:
        if name in view.factors(step) and step.after.point.id in where:
            place = where[step.after.point.id]
            axes.axvline(place, color=GREY, linewidth=0.6, linestyle=":")
            axes.text(
                place,
                1.0,
                f" x {number(step.factor(name), 2)} {step.after.name[:7]}",
                transform=axes.get_xaxis_transform(),
                rotation=60,
                fontsize=6.5,
            )


def _draw_times(axes: Axes, view: View) -> None:
    """Draw the median and the range of each run's CPU time."""
    for place, run in enumerate(view.runs):
        if run.is_ok and (spent := run.cell.cpu_s):
            ends = [spent.median - min(spent.samples)], [max(spent.samples) - spent.median]
            axes.errorbar(place, spent.median, ends, fmt="o", color=BLUE, capsize=3, markersize=4)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: canvas.write_time(tick)))
    axes.set_ylabel(f"CPU time, {plural(view.turns, 'turn')}")
    axes.set_xlabel(canvas.short(view.problem, 60))
