"""A library's history as a figure and as one Markdown page."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from harness.contract.abilities.releases import Releases
from reports.core.drawing.canvas import (
    PALE,
    Drawing,
    blank_figure,
    colour_of,
    finish,
    linear_time,
    name_rows,
    short,
    style,
)
from reports.core.escaping import markdown
from reports.core.formatting import MISSING, amount, count, number, plural, with_interval
from reports.core.markdown import as_markdown
from reports.core.table import Entry, Table, code, numbers, table_of, text
from reports.series.releases import (
    Chapter,
    Release,
    Span,
    history_findings,
    history_rows,
    makers,
    ratio_to,
    times_text,
)

_MOST_MODULES = 4
_LEGEND: dict[str, Any] = {"columnspacing": 1.0, "handlelength": 1.2, "handletextpad": 0.5}
_ROW_INCHES, _AROUND_INCHES = 0.26, 1.05


def data(declared: Releases, chapters: Sequence[Chapter]) -> pd.DataFrame:
    """Return all rows of a history."""
    return pd.DataFrame([row for each in chapters for row in history_rows(each, declared.counters)])


def draw(declared: Releases, chapters: Sequence[Chapter]) -> Drawing | None:
    """Draw calls and CPU time by release, a row of axes for each problem; None without any."""
    shown = [each for each in chapters if each.run]
    if not shown:
        return None
    modules = _modules(shown)
    heights = [_ROW_INCHES * len(each.run) + _AROUND_INCHES for each in shown]
    with style():
        figure = blank_figure(sum(heights) + 0.3)
        grid = figure.subplots(len(shown), 2, squeeze=False, height_ratios=heights)
        for (left, right), chapter in zip(grid, shown, strict=True):
            _calls(left, chapter, modules)
            _times(right, chapter)
        for axes, place in zip(grid[0], ("outside lower left", "outside lower right"), strict=True):
            handles, labels = axes.get_legend_handles_labels()
            look: dict[str, Any] = {"loc": place, "ncols": len(labels), **_LEGEND}
            figure.legend(handles, labels, **look)
        title = f"{declared.library}: calls and CPU time by release"
        caption = (
            f"Left: Python calls of {declared.profiled}, exact, by the module that makes them. "
            "Right: CPU time of one plan, the median of the turns that each release took; "
            f"{declared.profiled}, with its range, is by its share in one plan."
        )
        return finish(figure, "history", title, caption, data(declared, chapters))


def _modules(chapters: Sequence[Chapter]) -> list[str]:
    """Return the modules that make most calls, in any release, the same for all problems."""
    most: dict[str, float] = {}
    for chapter in chapters:
        for made in makers(chapter).values():
            whole = sum(made.values())
            for module, calls in made.items():
                most[module] = max(most.get(module, 0.0), calls / whole)
    return sorted(most, key=lambda each: -most[each])[:_MOST_MODULES]


def _calls(axes: Axes, chapter: Chapter, modules: Sequence[str]) -> None:
    made = makers(chapter)
    names = [each.name for each in chapter.run]
    start = [0] * len(names)
    for position, module in enumerate([*modules, "others"]):
        if module == "others":
            widths = [sum(v for k, v in made[each].items() if k not in modules) for each in names]
        else:
            widths = [made[each].get(module, 0) for each in names]
        colour = PALE if module == "others" else colour_of(position)
        axes.barh(range(len(names)), widths, 0.7, start, color=colour, label=module)
        start = [a + b for a, b in zip(start, widths, strict=True)]
    name_rows(axes, names)
    axes.set_title(f"{short(chapter.problem, 44)}\ncalls of {chapter.profiled}", loc="left")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: amount(value)))
    axes.grid(axis="x")


def _times(axes: Axes, chapter: Chapter) -> None:
    timed = False
    name_rows(axes, [each.name for each in chapter.run])
    axes.set_title(f"\nCPU time, {plural(chapter.rounds, 'turn')}", loc="left")
    axes.grid(axis="x")
    for place, each in enumerate(chapter.run):
        if not (each.profiled and each.rest):
            continue
        median, low, high = each.profiled
        labels = (None, None) if timed else (chapter.profiled, "rest")
        timed = True
        span, bars = [[median - low], [high - median]], {"elinewidth": 0.9, "capsize": 2}
        axes.barh(place, median, 0.7, xerr=span, color=colour_of(5), error_kw=bars, label=labels[0])
        axes.barh(place, each.rest.median, 0.7, median, color=PALE, label=labels[1])
    if timed:
        linear_time(axes)


def page(declared: Releases, chapters: Sequence[Chapter], command: str, figure: str = "") -> str:
    """Return the history as Markdown, with the command behind it and the figure's file, if any."""
    environment = chapters[-1].environment
    packages = ", ".join(f"{name} {version}" for name, version in environment.packages.items())
    lines = [f"# {declared.library}, release by release", ""]
    if figure:
        lines += [f"![Calls and CPU time by release]({figure})", ""]
    for chapter in chapters:
        lines += [f"## {chapter.problem}", "", as_markdown(history_table(declared, chapter)), ""]
        lines += [*(f"* {markdown(each)}" for each in history_findings(chapter)), ""]
    lines += [
        "## How it was measured",
        "",
        f"`{command}`",
        "",
        f"Each release ran in a child process of its own on Python {environment.python} with "
        f"{packages or 'no other package'}, on {environment.cpu} ({environment.cores} "
        "cores). Calls are Python calls, built-in functions included, counted in a call of their "
        f"own; they are exact. {load_note(chapters)}",
        "",
    ]
    return "\n".join(lines)


def load_note(chapters: Sequence[Chapter]) -> str:
    """Say how CPU times came about, and whether the machine was quiet."""
    rounds = max((each.rounds for each in chapters), default=0)
    if not rounds:
        return "CPU times were not measured."
    load = max(each.load for each in chapters)
    quiet = load <= 1.1
    return (
        f"CPU times are medians of up to {plural(rounds, 'turn')}, in which the releases ran one "
        "after the other, forwards and backwards; their parts are by the shares in one plan. "
        f"The load was {'at most' if quiet else 'up to'} {load:g} a core"
        + ("." if quiet else ", so that they are unquiet: compare counts.")
    )


def history_table(declared: Releases, chapter: Chapter) -> Table:
    """Return a chapter's table, a row for each release."""
    counter, profiled = next(iter(declared.counters)), chapter.profiled
    before = {after.name: one for one, after in chapter.steps()}
    oldest = next(iter(chapter.run), None)

    def ratio(one: Release | None, other: Release) -> Entry:
        found = math.nan if other.reason else ratio_to(one, other)
        return Entry(times_text(found), found)

    def counted(value: int, each: Release) -> Entry:
        return Entry(MISSING) if each.reason else Entry(count(value), value)

    def spent(span: Span | None, *, ranged: bool) -> Entry:
        if span is None:
            return Entry(MISSING)
        median, low, high = (1e3 * each for each in span)
        written = with_interval(median, low, high).replace(" (", "\n(")
        return Entry(written if ranged else number(median), median)

    return table_of(
        chapter.releases,
        code("release", lambda each: each.name),
        numbers(f"calls of\n{profiled}", lambda each: counted(each.all_calls, each)),
        numbers("to\nprev.", lambda each: ratio(before.get(each.name), each)),
        numbers("to\nfirst", lambda each: ratio(oldest, each)),
        numbers(f"CPU ms of\n{profiled}", lambda each: spent(each.profiled, ranged=True)),
        numbers("ms of\nthe rest", lambda each: spent(each.rest, ranged=False)),
        numbers(
            counter.replace("_", "\n"), lambda each: counted(each.counters.get(counter, 0), each)
        ),
        text("decision", lambda each: each.decision or "not run"),
    )
