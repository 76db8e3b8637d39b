"""The figure that a report opens with: published, measured and ours of each system."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from harness.measuring.timing.verdict import CONFIDENCE
from reports.core.drawing import canvas
from reports.core.drawing.canvas import BLUE, GREY, VERMILION, Drawing, Ends
from reports.family.data import rows_of
from reports.report.table import factor, ours_text, published_text

_KINDS: dict[str, dict[str, Any]] = {
    "published": {"color": GREY, "marker": "s"},
    "the same change, measured here": {"color": BLUE, "marker": "o"},
    "ours over today's release": {"color": VERMILION, "marker": "D"},
}
_STEP = 0.27


def draw_overview(table: pd.DataFrame) -> Iterator[Drawing]:
    """Draw how many times as fast, on a logarithmic axis, where anything is to be drawn."""
    columns = ["published", "measured", "times_as_fast"]
    drawn = table[table[columns].notna().any(axis=1)]
    if drawn.empty:
        return
    with canvas.style():
        figure, axes = canvas.new_figure(0.85 + 0.56 * len(drawn))
        held = drawn[[*columns, "low", "measured_low"]].min().min()
        least = min(float(held), 1.0)
        axes.set_xscale("log")
        axes.set_xlim(least * 0.8, max(float(drawn[columns].max().max()) * 1.1, 2.0))
        for place, row in enumerate(rows_of(drawn)):
            _draw_row(axes, place, row)
            if place:
                axes.axhline(place - 0.5, color="#E4E4E4", linewidth=0.8)
        canvas.name_rows(axes, [_wrapped(name) for name in drawn["system"]])
        axes.grid(axis="x")
        axes.axvline(1.0, color=GREY, linewidth=0.8)
        axes.set_xlabel("times as fast, log scale")
        keys = (canvas.key(name, linestyle="none", **look) for name, look in _KINDS.items())
        canvas.legend_above(figure, *keys)
        canvas.make_room(axes)
        canvas.log_number(axes)
        caption = (
            f"Lines are {100 * CONFIDENCE:.0f} % intervals. Published figures are of other "
            "machines and problems. Ours makes the decision of today's release where both were "
            "run. Repeated work counts one call of today's release against the sufficient count; "
            "gaps to the proven bound are those of its decision and of our best one."
        )
        if (drawn["basis"] != "measured").any():
            caption += (
                " Hollow: today's release was stopped, and its projection, or the budget that it "
                "passed, stands in for its time."
            )
        title = "Published, measured and ours"
        yield canvas.finish(figure, "overview-times", title, caption, table)


def _wrapped(name: str) -> str:
    head, comma, rest = name.partition(", ")
    return f"{head},\n{rest}" if comma and len(name) > 24 else name


def _draw_row(axes: Axes, place: int, row: dict[str, Any]) -> None:
    values = (
        (row["published"], (math.nan, math.nan), published_text(row)),
        (row["measured"], (row["measured_low"], row["measured_high"]), ""),
        (row["times_as_fast"], (row["low"], row["high"]), ours_text(row)),
    )
    for step, ((name, look), (value, ends, text)) in enumerate(
        zip(_KINDS.items(), values, strict=True), start=-1
    ):
        if not math.isnan(value):
            hollow = step == 1 and row["basis"] != "measured"
            hint = f"{row['system']}, {name}: {text or factor(value)}"
            _draw_mark(axes, place + step * _STEP, value, ends, look, hollow, hint)


def _draw_mark(
    axes: Axes,
    place: float,
    value: float,
    ends: Ends,
    look: dict[str, Any],
    hollow: bool,
    hint: str,
) -> None:
    end = value
    if all(map(math.isfinite, ends)):
        axes.plot(ends, (place, place), color=look["color"], linewidth=1.6, solid_capstyle="round")
        end = max(value, ends[1])
    face = "white" if hollow else look["color"]
    (mark,) = axes.plot(value, place, markersize=5.5, markerfacecolor=face, **look)
    canvas.mark(mark, hint)
    said = f"{'≥ ' if hollow else ''}{factor(value)}"
    canvas.write_right_of(axes, end, place, said, fontsize=8)
