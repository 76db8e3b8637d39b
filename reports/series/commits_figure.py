"""The figure of a history by commits: calls of each part, and the steps named."""

import math
from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes

from harness.series.steps import Step
from reports.core.drawing import canvas
from reports.core.drawing.canvas import GREY, Drawing, colour_of
from reports.core.formatting import amount, number
from reports.series.commits import CommitHistory

SLUG = "commits"

_HEIGHT = 2.7
_MOST_TICKS = 12
_ROWS = 5
_LEAST_APART = 0.06


def draw_commits(history: CommitHistory, data: pd.DataFrame) -> Drawing | None:
    """Draw calls by commit, a row for each part; None where fewer than two commits run.

    A point leads to its commit in the page's table.
    """
    if len(history.ran) < 2:
        return None
    parts = list(history.declared.parts)
    with canvas.style():
        figure = canvas.blank_figure(_HEIGHT * len(parts) + 0.4)
        grid = figure.subplots(len(parts), 1, squeeze=False, sharex=True)
        for place, (axes, part) in enumerate(zip(grid[:, 0], parts, strict=True)):
            _draw_part(axes, history, part, colour_of(place))
        _name_dates(grid[-1, 0], history)
        caption = (
            "Calls of one plan, exact, on a logarithmic axis. A step is named where it changes "
            f"them by a factor of {number(history.least, trim=True)} or more. Grey are commits "
            "that do not run."
        )
        title = f"{history.declared.library}: calls by commit"
        return canvas.finish(figure, SLUG, title, caption, data)


def _draw_part(axes: Axes, history: CommitHistory, part: str, colour: str) -> None:
    name = f"{part}_calls"
    runs = list(enumerate(history.runs))
    ran = [(place, run.value(name), run) for place, run in runs if run.is_ok]
    places, values = [each[0] for each in ran], [each[1] for each in ran]
    axes.set_yscale("log")
    axes.plot(places, values, color=colour, linewidth=1.2, drawstyle="steps-post")
    points = axes.scatter(places, values, s=9, color=colour, linewidths=0, zorder=3)
    points.set_urls([f"#{run.commit.short}" for *_, run in ran])
    for start, end in _gaps([run.is_ok for _, run in runs]):
        axes.axvspan(start - 0.5, end + 0.5, color="#E4E4E4", linewidth=0)
    low, high = min(values), max(values)
    # Room for the names of steps above the curve, and for ticks at round numbers.
    axes.set_ylim(low / 1.6, high * (high / low) ** 0.6 * 3)
    ticks = [each for each in canvas.ROUND_NUMBERS if low / 1.6 <= each <= high * 2.2]
    canvas.set_ticks(axes.yaxis, ticks[:: math.ceil(len(ticks) / 6)] or [low], amount)
    axes.set_title(f"calls of {history.declared.parts[part]}", loc="left")
    axes.grid(axis="y")
    index = {run.commit.id: place for place, run in runs}
    told = [each for each in history.dearer if name in history.factors(each)]
    _name_steps(axes, [(_place(index, history, each), each) for each in told], name)


def _place(index: dict[str, int], history: CommitHistory, step: Step) -> float:
    """Return where a step stands; a commit that is not in the history, after the one before it."""
    if step.after.commit.id in index:
        return index[step.after.commit.id]
    later = (p for p, run in enumerate(history.runs) if run.commit.date > step.after.commit.date)
    return next(later, len(history.runs)) - 0.5


def _name_steps(axes: Axes, placed: list[tuple[float, Step]], name: str) -> None:
    """Write the factor of each step at the top, as a link to its commit, in rows by turns."""
    for turn, (place, step) in enumerate(sorted(placed, key=lambda each: each[0])):
        axes.axvline(place, color=GREY, linewidth=0.6, linestyle=":")
        axes.text(
            place,
            0.985 - 0.08 * (turn % _ROWS),
            f"x {number(step.factor(name), 2)} {step.after.commit.short[:7]}",
            transform=axes.get_xaxis_transform(),
            ha="right" if place > 0.85 * axes.get_xlim()[1] else "left",
            va="top",
            fontsize=6.5,
            url=f"#{step.after.commit.short}",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.3},
        )


def _gaps(ok: list[bool]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last place of each stretch that does not run."""
    start: int | None = None
    for place, is_ok in enumerate([*ok, True]):
        if not is_ok and start is None:
            start = place
        elif is_ok and start is not None:
            yield start, place - 1
            start = None


def _name_dates(axes: Axes, history: CommitHistory) -> None:
    """Name the first commit of each year, or of each month or day where that is less."""
    dates = [run.commit.date for run in history.runs]
    for length in (10, 7, 4):
        firsts = [
            p for p, date in enumerate(dates) if not p or date[:length] != dates[p - 1][:length]
        ]
        if len(firsts) <= _MOST_TICKS:
            break
    apart = _LEAST_APART * len(dates)
    shown = [
        p for p, after in zip(firsts, [*firsts[1:], math.inf], strict=True) if after - p > apart
    ]
    axes.set_xticks(shown, [dates[place][:length] for place in shown])
    axes.set_xlabel("commits that touch what decides, one after another")
