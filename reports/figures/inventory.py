"""What a workload holds, as one drawing."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from harness.contract.inventory import Cell, Column, Inventory, distribution
from harness.model.errors import printable
from reports.figures.canvas import BLUE, GREY, WIDTH, Drawing, finish, name_rows, short, style
from reports.inventories import largest_title, range_of, text_of

_HISTOGRAM_INCHES, _ROW_INCHES, _AROUND_INCHES = 1.9, 0.22, 0.7
_LONGEST_NAME = 40


def draw(inventory: Inventory, sort: str, most: int) -> Drawing:
    """Draw the distributions of an inventory and its largest parts.

    Raises:
        UsageError: there is no such column.
    """
    rows = inventory.largest(sort, most)
    drawn = inventory.drawn
    pairs = -(-len(drawn) // 2)
    heights = [_HISTOGRAM_INCHES] * pairs + [_AROUND_INCHES + _ROW_INCHES * len(rows)]
    with style():
        figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
        for place, column in enumerate(drawn):
            _draw_distribution(figure.add_subplot(grid[divmod(place, 2)]), inventory, column)
        _draw_largest(figure.add_subplot(grid[pairs, :]), inventory, rows, sort)
        lines = (inventory.title, inventory.summary, *inventory.notes)
        figure.suptitle("\n".join(short(printable(line)) for line in lines), fontsize=9.0)
        data = pd.DataFrame(rows, columns=[column.name for column in inventory.columns])
        return finish(figure, "inventory", inventory.title, inventory.summary, data)


def _draw_distribution(axes: Axes, inventory: Inventory, column: Column) -> None:
    bars = distribution(inventory, column)
    axes.barh(range(len(bars)), [bar.parts for bar in bars], height=0.8, color=BLUE)
    for place, bar in enumerate(bars):
        axes.annotate(
            f"{bar.parts:,}",
            (bar.parts, place),
            (3, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color=GREY,
        )
    axes.set_yticks(range(len(bars)), [range_of(bar, column) for bar in bars], fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 1.18 * max((bar.parts for bar in bars), default=1))
    axes.xaxis.set_major_locator(NullLocator())
    axes.spines["bottom"].set_visible(False)
    axes.set_title(f"{inventory.part.capitalize()}s by {_with_unit(column)}", loc="left")


def _with_unit(column: Column) -> str:
    return f"{column.heading} ({column.unit})" if column.unit else column.heading


def _draw_largest(
    axes: Axes, inventory: Inventory, rows: Sequence[Sequence[Cell]], sort: str
) -> None:
    by = sort if inventory.columns[inventory.place(sort)].kind != "text" else inventory.sort
    place = inventory.place(by)
    column = inventory.columns[place]
    values = [float(row[place]) for row in rows]
    axes.barh(range(len(rows)), values, height=0.75, color=BLUE)
    for at, row in enumerate(rows):
        axes.annotate(
            text_of(row[place], column),
            (values[at], at),
            (3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.0,
            color=GREY,
        )
    name_rows(axes, [short(printable(str(row[0])), _LONGEST_NAME) for row in rows])
    axes.set_xlim(0, 1.15 * max(values, default=1.0) or 1.0)
    axes.xaxis.set_major_locator(NullLocator())
    axes.spines["bottom"].set_visible(False)
    axes.set_title(largest_title(inventory, sort, len(rows)), loc="left")
