"""The first figure of a report: published, measured and our speed-ups of each system."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from harness.measuring.timing.verdict import CONFIDENCE
from reports.core.drawing import canvas
from reports.core.drawing.canvas import BLUE, GREY, NO_ENDS, VERMILION, Drawing
from reports.core.formatting import factor
from reports.family.data import rows_of
from reports.report.table import ours_text, published_text

_KINDS: dict[str, dict[str, Any]] = {
    "published": {"color": GREY, "marker": "s"},
    "the same change, measured here": {"color": BLUE, "marker": "o"},
    "ours over today's release": {"color": VERMILION, "marker": "D"},
}
_STEP = 0.27


def draw_overview(table: pd.DataFrame) -> Iterator[Drawing]:
    """Draw the speed-ups of `overview` on a logarithmic axis, if any speed-up is known."""
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
        names = [_wrapped(name) for name in drawn["system"]]
        canvas.name_rows(axes, names, "times as fast, log scale")
        axes.axvline(1.0, color=GREY, linewidth=0.8)
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
    hollow = row["basis"] != "measured"
    marks = (
        (row["published"], NO_ENDS, published_text(row), False),
        (row["measured"], (row["measured_low"], row["measured_high"]), "", False),
        (row["times_as_fast"], (row["low"], row["high"]), ours_text(row), hollow),
    )
    for step, ((name, look), (value, ends, text, is_hollow)) in enumerate(
        zip(_KINDS.items(), marks, strict=True), start=-1
    ):
        if math.isnan(value):
            continue
        end, height, colour = value, place + step * _STEP, look["color"]
        if all(map(math.isfinite, ends)):
            line = {"color": colour, "linewidth": 1.6, "solid_capstyle": "round"}
            axes.plot(ends, (height, height), **line)
            end = max(value, ends[1])
        face = "white" if is_hollow else colour
        (mark,) = axes.plot(value, height, markersize=5.5, markerfacecolor=face, **look)
        canvas.mark(mark, f"{row['system']}, {name}: {text or factor(value)}")
        shown = f"{'≥ ' if is_hollow else ''}{factor(value)}"
        canvas.write_right_of(axes, end, height, shown, fontsize=8)
