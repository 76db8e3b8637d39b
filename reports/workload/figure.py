"""The figure of a workload's inventory: distributions and largest parts, such as tables."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from harness.contract.abilities.inventory import Cell, Column, Inventory, distribution
from harness.model.errors import printable
from reports.core.drawing import canvas
from reports.core.drawing.canvas import BLUE, GREY, Drawing
from reports.workload.text import largest_title, range_of, text_of, with_unit

_HISTOGRAM_INCHES, _ROW_INCHES, _AROUND_INCHES = 1.9, 0.22, 0.7
_LONGEST_NAME = 40


def draw(inventory: Inventory, sort: str, most: int) -> Drawing:
    """Draw the distributions of an inventory, and its `most` largest parts by the column `sort`."""
    rows = inventory.largest(sort, most)
    drawn = inventory.drawn
    pairs = -(-len(drawn) // 2)
    heights = [_HISTOGRAM_INCHES] * pairs + [_AROUND_INCHES + _ROW_INCHES * len(rows)]
    with canvas.style():
        figure = canvas.blank_figure(sum(heights))
        grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
        for place, column in enumerate(drawn):
            _draw_distribution(figure.add_subplot(grid[divmod(place, 2)]), inventory, column)
        _draw_largest(figure.add_subplot(grid[pairs, :]), inventory, rows, sort)
        lines = (inventory.title, inventory.summary, *inventory.notes)
        figure.suptitle("\n".join(canvas.short(printable(line)) for line in lines), fontsize=9.0)
        data = pd.DataFrame(rows, columns=[column.name for column in inventory.columns])
        return canvas.finish(figure, "inventory", inventory.title, inventory.summary, data)


def _draw_distribution(axes: Axes, inventory: Inventory, column: Column) -> None:
    bars = distribution(inventory, column)
    counts = [(bar.parts, f"{bar.parts:,}") for bar in bars]
    labels = [range_of(bar, column) for bar in bars]
    title = f"{inventory.part.capitalize()}s by {with_unit(column)}"
    _draw_bars(axes, counts, title, size=7.5)
    axes.set_yticks(range(len(bars)), labels, fontsize=7.5)
    axes.tick_params(axis="y", length=0)


def _draw_largest(
    axes: Axes, inventory: Inventory, rows: Sequence[Sequence[Cell]], sort: str
) -> None:
    place = inventory.place_of_bars(sort)
    texts = (text_of(row[place], inventory.columns[place]) for row in rows)
    bars = list(zip((float(row[place]) for row in rows), texts, strict=True))
    _draw_bars(axes, bars, largest_title(inventory, sort, len(rows)), size=8.0)
    canvas.name_rows(axes, [canvas.short(printable(str(row[0])), _LONGEST_NAME) for row in rows])


def _draw_bars(axes: Axes, bars: Sequence[tuple[float, str]], title: str, size: float) -> None:
    """Draw a bar for each value, with its text to the right, and no x axis."""
    axes.barh(range(len(bars)), [value for value, _ in bars], height=0.78, color=BLUE)
    for place, (value, text) in enumerate(bars):
        canvas.write_right_of(axes, value, place, text, color=GREY, fontsize=size)
    axes.set_xlim(0, 1.18 * max((value for value, _ in bars), default=1.0) or 1.0)
    axes.xaxis.set_major_locator(NullLocator())
    axes.spines["bottom"].set_visible(False)
    axes.set_title(title, loc="left")
