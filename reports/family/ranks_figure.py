"""The figure of what each rank gets under two plans."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from reports.core.drawing import canvas
from reports.core.drawing.canvas import BLUE, ORANGE, VERMILION, Drawing
from reports.core.formatting import number
from reports.family.data import FamilyView
from reports.family.ranks import RankView, ranks

_MOST_BARS = 128
_MOST_STEPS = 400
_LONGEST_NAME = 34


def draw_ranks(family: FamilyView) -> Iterator[Drawing]:
    """Draw the plans side by side: a row of bars per figure, with the capacity as a line."""
    view = ranks(family)
    if view is None or not view.names:
        return
    names = view.names
    figure = canvas.blank_figure(0.9 + 1.75 * len(names))
    grid = figure.subplots(
        len(names), len(view.variants), sharex="col", sharey="row", squeeze=False
    )
    limited = False
    for place, (row, name) in enumerate(zip(grid, names, strict=True)):
        for axes, variant in zip(row, view.variants, strict=True):
            held = view.of(variant, name)
            _draw_bars(axes, held)
            capacity = float(held["capacity"].max())
            if not math.isnan(capacity):
                limited = True
                axes.axhline(capacity, color="black", linestyle="--", linewidth=1)
            most, mean = held["value"].max(), held["value"].mean()
            said = f"most {number(float(most))}, mean {number(float(mean))}"
            plan = f"{canvas.short(variant, _LONGEST_NAME)}\n" if place == 0 else ""
            axes.set_title(f"{plan}{said}", loc="left")
            axes.grid(axis="y")
        # Once for the row, whose axes are shared: a limit that is set stops them from growing.
        lows = [float(view.of(variant, name)["value"].min()) for variant in view.variants]
        row[0].set_ylim(bottom=min(0.0, *lows))
        row[0].set_ylabel(canvas.short(name, _LONGEST_NAME))
    for axes in grid[-1]:
        axes.set_xlabel("rank")
    handles: list[Any] = [
        Patch(facecolor=BLUE, label="a rank"),
        Patch(facecolor=VERMILION, edgecolor="white", hatch="///", label="the heaviest"),
    ]
    if limited:
        handles.append(canvas.key("capacity of a rank", color="black", linestyle="--"))
    canvas.legend_above(figure, *handles)
    yield canvas.finish(
        figure, f"{family.slug}-ranks", "What each rank gets", _caption(view), view.figures
    )


def _draw_bars(axes: Axes, held: pd.DataFrame) -> None:
    values = held["value"].to_numpy()
    heaviest = int(values.argmax())
    if len(values) > _MOST_BARS:  # bars as wide as a pixel are drawn as one outline
        step = math.ceil(len(values) / _MOST_STEPS)
        tops = [values[place : place + step].max() for place in range(0, len(values), step)]
        edges = [place * step - 0.5 for place in range(len(tops) + 1)]
        axes.stairs(tops, edges, fill=True, color=BLUE)
        axes.plot(heaviest, values[heaviest], marker="v", color=ORANGE, markeredgecolor="black")
        return
    colours = [VERMILION if place == heaviest else BLUE for place in range(len(values))]
    bars = axes.bar(held["rank"], values, 0.8, color=colours)
    bars[heaviest].set(hatch="///", edgecolor="white", linewidth=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _caption(view: RankView) -> str:
    """Say what is drawn, and that it is an estimate."""
    plans = " and ".join(f"`{name}`" for name in view.variants)
    text = f"The plans of {plans} on `{view.problem}`, by the planner's own estimate."
    amount = int(view.figures["rank"].max()) + 1
    if amount > _MOST_STEPS:
        text += f" A step is the heaviest of {math.ceil(amount / _MOST_STEPS)} neighbours."
    if len(view.variants) == 1:
        text += " No variant has another plan to be set beside it."
    return text
