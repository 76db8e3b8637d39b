"""Planning time against the size of a problem, as figure and table."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from reports.core.drawing import canvas
from reports.core.drawing.canvas import GREY, MARKERS, Drawing
from reports.core.formatting import count, hundredths, seconds, with_interval
from reports.family.data import FamilyView, rows_of


def draw_growth(family: FamilyView) -> Iterator[Drawing]:
    """Draw a figure per sweep: CPU time against size, with exponents and stopped calls."""
    points = family.sweep_points
    groups = points.groupby(["sweep", "size_name"], sort=False)
    for place, ((sweep, size), group) in enumerate(groups, start=1):
        fits = family.exponents.set_index(["sweep", "size_name"]).loc[[(sweep, size)]]
        fits = fits.set_index("variant")
        figure, axes = canvas.new_figure(4.2)
        handles: list[Line2D] = []
        for variant in group["variant"].unique():
            index = family.variants.index(variant)
            line = group[group["variant"] == variant].sort_values("size")
            label = _fit_label(variant, fits.loc[variant])
            handles.append(_draw_line(axes, line, index, len(handles), label))
        for budget in sorted(group["budget_s"].dropna().unique()):
            label = f"budget of a call, {seconds(budget, trim=True)} (wall)"
            look: dict[str, Any] = {"color": GREY, "linestyle": ":", "linewidth": 1, "label": label}
            line = axes.axhline(budget, **look)
            canvas.mark(line, label, len(handles))
            handles.append(line)
        _log_axes(axes, sorted(group["size"].unique()))
        axes.set_xlabel(str(size))
        axes.set_ylabel("planning time (CPU)")
        caption = f"`{sweep}`. In brackets the 95 % interval of the exponent."
        hollow: dict[str, Any] = {"color": GREY, "linestyle": "--", "markerfacecolor": "white"}
        if group["projected"].any():
            handles.append(canvas.key("projection, not measured", marker="o", **hollow))
            caption += (
                " Hollow points are projections of calls that passed their budget, from the "
                "progress they had made; they take no part in the fit."
            )
        if group["stopped"].any():
            handles.append(canvas.key("stopped there, takes longer", marker="^", **hollow))
            caption += (
                " Hollow triangles are calls that were stopped at their budget with no progress "
                "to project from."
            )
        canvas.make_switches(figure.legend(handles=handles, loc="outside right upper"))
        data = group.merge(fits[["exponent", "low", "high"]], left_on="variant", right_index=True)
        name = "Planning time against size"
        yield canvas.finish(figure, f"{family.slug}-size-{place}", name, caption, data)


def _fit_label(variant: str, fit: "pd.Series[float]") -> str:
    if math.isnan(fit["exponent"]):
        return variant
    power = with_interval(fit["exponent"], fit["low"], fit["high"], hundredths)
    return f"{variant}\nsize^{power}"


def _draw_line(axes: Axes, line: pd.DataFrame, index: int, series: int, label: str) -> Line2D:
    """Draw a variant's line, with a tooltip at each point; return its legend entry."""
    colour, marker = canvas.colour_of(index), MARKERS[index % len(MARKERS)]
    style = "-." if index >= len(canvas.PALETTE) else "-"
    over = line["projected"].astype(bool) | line["stopped"].astype(bool)
    measured, ended = line[~over], line[over]
    name = str(line["variant"].iloc[0])
    tail = pd.concat([measured.tail(1), ended]).sort_values("size")
    for part, dashes, width in ((measured, style, 1.5), (tail, "--", 1.0)):
        if len(part) > 1 and (part is measured or len(ended)):
            strokes: dict[str, Any] = {"color": colour, "linestyle": dashes, "linewidth": width}
            (drawn,) = axes.plot(part["size"], part["seconds"], **strokes)
            canvas.mark(drawn, name, series)
    for row in rows_of(line):
        look: dict[str, Any] = {
            "color": colour,
            "marker": marker,
            "markersize": 5,
            "linestyle": "none",
        }
        tooltip = f"{name} at {count(row['size'])}: {seconds(row['seconds'])}"
        if row["projected"] or row["stopped"]:
            shape = "^" if row["stopped"] else marker
            look |= {"marker": shape, "markersize": 6, "markerfacecolor": "white"}
            tooltip += ", stopped there" if row["stopped"] else ", projected"
        (point,) = axes.plot(row["size"], row["seconds"], **look)
        canvas.mark(point, tooltip, series)
    return canvas.key(label, color=colour, marker=marker, markersize=5, linestyle=style)


def _log_axes(axes: Axes, sizes: list[float]) -> None:
    axes.set_xscale("log")
    canvas.log_time(axes, "y")
    shown: list[float] = []
    for size in sizes:
        if not shown or math.log(size / shown[-1]) > 0.07 * math.log(sizes[-1] / sizes[0]):
            shown.append(float(size))
    canvas.set_ticks(axes.xaxis, shown, count)
    axes.grid(True)
