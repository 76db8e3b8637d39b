"""What a workload holds, for people: its figures as text, and the whole as one drawing or CSV."""

import csv
import io
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from harness.errors import printable
from harness.inventory import Bar, Cell, Column, Inventory, distribution
from reports.drawing import BLUE, GREY, WIDTH, Drawing, finish, name_rows, short, style
from reports.formatting import number

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_AMOUNTS = ("", " k", " M", " G", " T", " P")
_HISTOGRAM_INCHES, _ROW_INCHES, _AROUND_INCHES = 1.9, 0.22, 0.7
_LONGEST_NAME = 40


def in_bytes(value: float) -> str:
    """Write bytes in B, KiB, MiB and so on, with three significant digits."""
    place = 0
    while value >= 1023.5 and place < len(_BYTES) - 1:
        value /= 1024
        place += 1
    return f"{_three(value)} {_BYTES[place]}"


def _three(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 or value == int(value) else f"{value:#.3g}"


def amount(value: float) -> str:
    """Write an amount briefly: `12`, `1.5 k`, `40 M`."""
    place = 0
    while value >= 999.5 and place < len(_AMOUNTS) - 1:
        value /= 1000
        place += 1
    return f"{_three(value)}{_AMOUNTS[place]}"


def text_of(value: Cell, column: Column) -> str:
    """Write a cell of an inventory."""
    if isinstance(value, str):
        return printable(value)
    if column.kind == "bytes":
        return in_bytes(value)
    return number(float(value), trim=True) if column.kind == "number" else f"{value:,}"


def range_of(bar: Bar, column: Column) -> str:
    """Write which values a bar of a distribution is about."""
    write = in_bytes if column.kind == "bytes" else amount
    if bar.low == bar.high:
        return write(bar.low) if column.kind != "number" else number(bar.low, trim=True)
    return f"{write(bar.low)} to {write(bar.high)}"


def largest_title(inventory: Inventory, sort: str, shown: int) -> str:
    """Say which rows are shown of how many: `The 10 largest tables of 60 by bytes`."""
    column = inventory.columns[inventory.place(sort)]
    order = "first" if column.kind == "text" else "largest"
    total = len(inventory.rows)
    if total == 1:
        return f"The one {inventory.part}"
    if shown == 1:
        return f"The {order} {inventory.part} of {total:,} by {column.heading}"
    if shown >= total:
        return f"All {total:,} {inventory.part}s by {column.heading}"
    return f"The {shown:,} {order} {inventory.part}s of {total:,} by {column.heading}"


def to_csv(inventory: Inventory, rows: Sequence[Sequence[Cell]]) -> str:
    """Return rows as CSV; texts lose what has no glyph."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in inventory.columns])
    for row in rows:
        writer.writerow(
            [printable(cell) if isinstance(cell, str) else _plain(cell) for cell in row]
        )
    return text.getvalue()


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


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
