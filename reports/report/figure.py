"""The figures of a report's first screen and of its published changes, also for the docs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from harness.measuring.timing.verdict import CONFIDENCE
from reports.core.drawing import canvas
from reports.core.drawing.canvas import BLUE, GREY, NO_ENDS, VERMILION, Drawing
from reports.core.formatting import factor
from reports.statements import System

_NARROW = 4.7  # inches; such a figure can be read on a phone without scrolling

_PUBLISHED: Mapping[str, dict[str, Any]] = {
    "published": {"color": GREY, "marker": "s"},
    "measured": {"color": BLUE, "marker": "o"},
}
_OURS: Mapping[str, dict[str, Any]] = {"ours": {"color": VERMILION, "marker": "D"}}
_INTERVALS = f"Lines longer than their mark are {100 * CONFIDENCE:.0f} % intervals."


def draw_gains(rows: Sequence[System]) -> Iterator[Drawing]:
    """Draw the speed-ups of ours over today's releases, if any is known."""
    drawn = [row for row in rows if row.times.figure]
    if not drawn:
        return
    with canvas.style():
        figure = canvas.blank_figure(0.7 + 0.42 * len(drawn), _NARROW)
        is_ours = any(row.statement.claim for row in drawn)
        other = "today's release" if is_ours else "the variant compared with"
        _draw_panel(figure.subplots(), drawn, _OURS, f"times as fast as {other}, log scale")
        caption = _INTERVALS
        if any(row.times.figure and row.times.figure.sign for row in drawn):
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
        _key(figure, _PUBLISHED)
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
        _key(figure, {**_PUBLISHED, **_OURS})
        caption = (
            "Left: the published change, as published and as reproduced here. Right: ours "
            f"over today's release. {_INTERVALS}"
        )
        yield canvas.finish(
            figure, "overview-times", "Published, reproduced, ours", caption, _frame(rows)
        )


def _frame(rows: Sequence[System]) -> pd.DataFrame:
    """Return the drawn figures as data for users, a row per system."""
    ends = ("", "_low", "_high")
    return pd.DataFrame(
        [
            {"system": row.name}
            | {"published": _figure(row, "published")[0]}
            | dict(zip([f"measured{end}" for end in ends], _figure(row, "measured"), strict=True))
            | dict(zip([f"ours{end}" for end in ends], _figure(row, "ours"), strict=True))
            | {"basis": row.times.figure.basis if row.times.figure else ""}
            for row in rows
        ]
    )


def _figure(row: System, name: str) -> tuple[float, float, float]:
    """Return a speed-up with the ends of its interval, NaN where unknown."""
    if name == "published":
        figures = row.claim.statement.published if row.claim else None
        return (1 / figures.ratio if figures else math.nan, *NO_ENDS)
    reading = row.times if name == "ours" else row.claim
    return (reading.value, *reading.interval) if reading else (math.nan, *NO_ENDS)


def _key(figure: Any, looks: Mapping[str, dict[str, Any]]) -> None:
    keys = (canvas.key(name, linestyle="none", **look) for name, look in looks.items())
    canvas.legend_above(figure, *keys)


def _draw_panel(
    axes: Axes, rows: Sequence[System], looks: Mapping[str, dict[str, Any]], scale: str
) -> None:
    values = [_figure(row, name)[0] for row in rows for name in looks]
    values = [value for value in values if not math.isnan(value)]
    axes.set_xscale("log")
    axes.set_xlim(min(*values, 1.0) * 0.8, max(max(values) * 1.1, 2.0))
    middle = (len(looks) - 1) / 2
    for place, row in enumerate(rows):
        for step, (name, look) in enumerate(looks.items()):
            _draw_mark(axes, place + (step - middle) * 0.34, row, name, look)
        if place:
            axes.axhline(place - 0.5, color="#E4E4E4", linewidth=0.8)
    canvas.name_rows(axes, [_wrapped(row.name) for row in rows], scale)
    axes.axvline(1.0, color=GREY, linewidth=0.8)
    canvas.make_room(axes)
    canvas.log_number(axes)


def _wrapped(name: str) -> str:
    head, comma, rest = name.partition(", ")
    return f"{head},\n{rest}" if comma and len(name) > 18 else name


def _draw_mark(axes: Axes, height: float, row: System, name: str, look: dict[str, Any]) -> None:
    value, low, high = _figure(row, name)
    if math.isnan(value):
        return
    end, colour = value, look["color"]
    if math.isfinite(low) and math.isfinite(high):
        line = {"color": colour, "linewidth": 1.6, "solid_capstyle": "round"}
        axes.plot((low, high), (height, height), **line)
        end = max(value, high)
    is_hollow = name == "ours" and row.times.figure is not None and row.times.figure.sign != ""
    face = "white" if is_hollow else colour
    (mark,) = axes.plot(value, height, markersize=5.5, markerfacecolor=face, **look)
    shown = f"{'≥ ' if is_hollow else ''}{factor(value)}"
    canvas.mark(mark, f"{row.name}, {name}: {shown}")
    canvas.write_right_of(axes, end, height, shown, fontsize=8)
