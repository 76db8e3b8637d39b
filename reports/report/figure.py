"""The figures of a report's first screen and of its published changes, also for the docs."""

import math
from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes

from harness.measuring.timing.verdict import CONFIDENCE
from reports.core import canvas
from reports.core.canvas import BLUE, GREY, VERMILION, Drawing, Looks, Mark
from reports.core.formatting import factor
from reports.family.data import Row, rows_of

_NARROW = 4.7  # inches; such a figure can be read on a phone without scrolling
_PUBLISHED: Looks = {"published": (GREY, "s"), "measured": (BLUE, "o")}
_OURS: Looks = {"ours": (VERMILION, "D")}
_COLUMNS = {
    "published": ("published", "", ""),
    "measured": ("measured", "measured_low", "measured_high"),
    "ours": ("times_as_fast", "low", "high"),
}
_INTERVALS = f"Lines longer than their mark are {100 * CONFIDENCE:.0f} % intervals."


def draw_gains(table: pd.DataFrame) -> Iterator[Drawing]:
    """Draw the speed-ups from `overview`, if any is known."""
    drawn = table[table["times_as_fast"].notna()]
    if drawn.empty:
        return
    with canvas.style():
        figure, axes = canvas.new_figure(0.7 + 0.42 * len(drawn), _NARROW)
        is_ours = drawn["declared"].any()
        other = "today's release" if is_ours else "the variant compared with"
        _draw_panel(axes, drawn, _OURS, f"times as fast as {other}, log scale")
        caption = _INTERVALS
        if (drawn["basis"] != "measured").any():
            caption += (
                f" Hollow: {other} reached its time limit; its time is projected from its "
                "progress, or else is the limit."
            )
        title = "Ours over today's releases" if is_ours else "Speed-ups"
        yield canvas.finish(figure, "gains", title, caption, table)


def draw_published(table: pd.DataFrame) -> Iterator[Drawing]:
    """Draw the published and the measured speed-ups from `overview`, if any is published."""
    drawn = table[table["published"].notna()]
    if drawn.empty:
        return
    with canvas.style():
        figure, axes = canvas.new_figure(0.85 + 0.48 * len(drawn))
        _draw_panel(axes, drawn, _PUBLISHED, "times as fast as before the change, log scale")
        canvas.legend_above(figure, _PUBLISHED)
        caption = f"{_INTERVALS} Published figures are of other machines and problems."
        yield canvas.finish(figure, "published", "Published and measured", caption, table)


def draw_overview(table: pd.DataFrame) -> Iterator[Drawing]:
    """Draw both in two panels, each with its own baseline, for the docs."""
    with canvas.style():
        figure = canvas.blank_figure(1.1 + 0.5 * len(table))
        left, right = figure.subplots(1, 2, sharey=True)
        _draw_panel(left, table, _PUBLISHED, "times as fast as before the change")
        _draw_panel(right, table, _OURS, "times as fast as today's release")
        right.tick_params(labelleft=False)
        canvas.legend_above(figure, {**_PUBLISHED, **_OURS})
        caption = (
            "Left: the published change, as published and as reproduced here. Right: ours "
            f"over today's release. {_INTERVALS}"
        )
        yield canvas.finish(figure, "overview-times", "Published, reproduced, ours", caption, table)


def _draw_panel(axes: Axes, table: pd.DataFrame, looks: Looks, scale: str) -> None:
    rows = rows_of(table)
    # A long name is broken after its first part.
    names = [
        row["system"].replace(", ", ",\n", 1) if len(row["system"]) > 18 else row["system"]
        for row in rows
    ]
    series = {name: [_mark(row, name) for row in rows] for name in looks}
    canvas.draw_rows(axes, names, series, looks, scale)


def _mark(row: Row, name: str) -> Mark:
    value, low, high = (row[column] if column else math.nan for column in _COLUMNS[name])
    is_hollow = name == "ours" and row["basis"] != "measured"
    text = "" if math.isnan(value) else f"{'≥ ' if is_hollow else ''}{factor(value)}"
    return Mark(value, text, low, high, is_hollow)
