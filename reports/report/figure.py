"""The figures of a report's first screen and of its published changes, also for the docs."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from harness.measuring.timing.verdict import CONFIDENCE
from reports.core.drawing import canvas
from reports.core.drawing.canvas import BLUE, GREY, NO_ENDS, VERMILION, Drawing
from reports.core.formatting import factor
from reports.family.data import Row, rows_of

_NARROW = 4.7  # inches; such a figure can be read on a phone without scrolling

_PUBLISHED: Mapping[str, dict[str, Any]] = {
    "published": {"color": GREY, "marker": "s"},
    "measured": {"color": BLUE, "marker": "o"},
}
_OURS: Mapping[str, dict[str, Any]] = {"ours": {"color": VERMILION, "marker": "D"}}
_ENDS = {"measured": ("measured_low", "measured_high"), "ours": ("low", "high")}
_VALUES = {"ours": "times_as_fast"}
_INTERVALS = f"Lines longer than their mark are {100 * CONFIDENCE:.0f} % intervals."


def draw_gains(table: pd.DataFrame) -> Iterator[Drawing]:
    """Draw the speed-ups from `overview`, if any is known."""
    drawn = table[table["times_as_fast"].notna()]
    if drawn.empty:
        return
    with canvas.style():
        figure = canvas.blank_figure(0.7 + 0.42 * len(drawn), _NARROW)
        axes = figure.subplots()
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
        _key(figure, _PUBLISHED)
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
        _key(figure, {**_PUBLISHED, **_OURS})
        caption = (
            "Left: the published change, as published and as reproduced here. Right: ours "
            f"over today's release. {_INTERVALS}"
        )
        yield canvas.finish(figure, "overview-times", "Published, reproduced, ours", caption, table)


def _key(figure: Any, looks: Mapping[str, dict[str, Any]]) -> None:
    keys = (canvas.key(name, linestyle="none", **look) for name, look in looks.items())
    canvas.legend_above(figure, *keys)


def _draw_panel(
    axes: Axes, table: pd.DataFrame, looks: Mapping[str, dict[str, Any]], scale: str
) -> None:
    values = table[[_VALUES.get(name, name) for name in looks]]
    least = min(float(values.min().min()), 1.0)
    axes.set_xscale("log")
    axes.set_xlim(least * 0.8, max(float(values.max().max()) * 1.1, 2.0))
    middle = (len(looks) - 1) / 2
    for place, row in enumerate(rows_of(table)):
        for step, (name, look) in enumerate(looks.items()):
            _draw_mark(axes, place + (step - middle) * 0.34, row, name, look)
        if place:
            axes.axhline(place - 0.5, color="#E4E4E4", linewidth=0.8)
    canvas.name_rows(axes, [_wrapped(name) for name in table["system"]], scale)
    axes.axvline(1.0, color=GREY, linewidth=0.8)
    canvas.make_room(axes)
    canvas.log_number(axes)


def _wrapped(name: str) -> str:
    head, comma, rest = name.partition(", ")
    return f"{head},\n{rest}" if comma and len(name) > 18 else name


def _draw_mark(axes: Axes, height: float, row: Row, name: str, look: dict[str, Any]) -> None:
    value = row[_VALUES.get(name, name)]
    if math.isnan(value):
        return
    low, high = (row[end] for end in _ENDS[name]) if name in _ENDS else NO_ENDS
    end, colour = value, look["color"]
    if math.isfinite(low) and math.isfinite(high):
        line = {"color": colour, "linewidth": 1.6, "solid_capstyle": "round"}
        axes.plot((low, high), (height, height), **line)
        end = max(value, high)
    is_hollow = name == "ours" and row["basis"] != "measured"
    face = "white" if is_hollow else colour
    (mark,) = axes.plot(value, height, markersize=5.5, markerfacecolor=face, **look)
    shown = f"{'≥ ' if is_hollow else ''}{factor(value)}"
    canvas.mark(mark, f"{row['system']}, {name}: {shown}")
    canvas.write_right_of(axes, end, height, shown, fontsize=8)
