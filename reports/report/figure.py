"""The figures of a report's first screen and of its published changes, also for the docs."""

import math
import re
from collections.abc import Iterator, Sequence

import pandas as pd
from matplotlib.axes import Axes

from harness.measuring.timing.verdict import CONFIDENCE
from reports.core import canvas
from reports.core.canvas import BLUE, GREY, VERMILION, Drawing, Looks, Mark
from reports.core.formatting import factor
from reports.statements import System

_NARROW = 4.7  # inches; such a figure can be read on a phone without scrolling
_PUBLISHED: Looks = {"published": (GREY, "s"), "measured": (BLUE, "o")}
_OURS: Looks = {"ours": (VERMILION, "D")}
_INTERVALS = f"Lines longer than their mark are {100 * CONFIDENCE:.0f} % intervals."


def draw_gains(rows: Sequence[System]) -> Iterator[Drawing]:
    """Draw the speed-ups of ours over today's releases, if any is known."""
    drawn = [row for row in rows if row.times.figure]
    if not drawn:
        return
    with canvas.style():
        figure, axes = canvas.new_figure(0.7 + 0.42 * len(drawn), _NARROW)
        is_ours = any(row.statement.claim for row in drawn)
        other = "today's release" if is_ours else "the variant compared with"
        _draw_panel(axes, drawn, _OURS, f"times as fast as {other}, log scale")
        caption = _INTERVALS
        if any(_mark(row, "ours").is_hollow for row in drawn):
            caption += (
                f" Hollow: {other} reached its time limit; its time is projected from its "
                "progress, or else is the limit."
            )
        title = "Ours over today's releases" if is_ours else "Speed-ups"
        yield canvas.finish(figure, "gains", title, caption, _frame(rows))


def draw_published(rows: Sequence[System]) -> Iterator[Drawing]:
    """Draw the published and the measured speed-ups of systems, if any is published."""
    drawn = [row for row in rows if row.claim and row.claim.statement.published]
    if not drawn:
        return
    with canvas.style():
        figure, axes = canvas.new_figure(0.85 + 0.48 * len(drawn))
        _draw_panel(axes, drawn, _PUBLISHED, "times as fast as before the change, log scale")
        canvas.legend_above(figure, _PUBLISHED)
        caption = f"{_INTERVALS} Published figures are of other machines and problems."
        yield canvas.finish(figure, "published", "Published and measured", caption, _frame(rows))


def draw_overview(rows: Sequence[System]) -> Iterator[Drawing]:
    """Draw both in two panels, each with its own baseline, for the docs."""
    with canvas.style():
        figure = canvas.blank_figure(1.1 + 0.5 * len(rows))
        left, right = figure.subplots(1, 2, sharey=True)
        _draw_panel(left, rows, _PUBLISHED, "times as fast as before the change")
        _draw_panel(right, rows, _OURS, "times as fast as today's release")
        right.tick_params(labelleft=False)
        canvas.legend_above(figure, {**_PUBLISHED, **_OURS})
        caption = (
            "Left: the published change, as published and as reproduced here. Right: ours "
            f"over today's release. {_INTERVALS}"
        )
        title = "Published, reproduced, ours"
        yield canvas.finish(figure, "overview-times", title, caption, _frame(rows))


def _draw_panel(axes: Axes, rows: Sequence[System], looks: Looks, scale: str) -> None:
    # A long name is broken after its parts.
    names = [
        re.sub(r"(?<=[,:]) |(?= against) ", "\n", row.name) if len(row.name) > 18 else row.name
        for row in rows
    ]
    series = {name: [_mark(row, name) for row in rows] for name in looks}
    canvas.draw_rows(axes, names, series, looks, scale)


def _mark(row: System, name: str) -> Mark:
    """Return the mark of a speed-up, with NaN for what is unknown."""
    value = low = high = math.nan
    reading = row.times if name == "ours" else row.claim
    if name == "published":
        published = reading.statement.published if reading else None
        value = 1 / published.ratio if published else math.nan
    elif reading:
        value, (low, high) = reading.value, reading.interval
    is_hollow = bool(name == "ours" and row.times.figure and row.times.figure.sign)
    text = "" if math.isnan(value) else f"{'≥ ' if is_hollow else ''}{factor(value)}"
    return Mark(value, text, low, high, is_hollow)


def _frame(rows: Sequence[System]) -> pd.DataFrame:
    """Return the drawn figures as data for users, a row per system."""
    lines = []
    for row in rows:
        line: dict[str, object] = {"system": row.name}
        for name in ("published", "measured", "ours"):
            mark = _mark(row, name)
            line |= {name: mark.value, f"{name}_low": mark.low, f"{name}_high": mark.high}
        lines.append(line | {"basis": row.times.figure.basis if row.times.figure else ""})
    return pd.DataFrame(lines)
