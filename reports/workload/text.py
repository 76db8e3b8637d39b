"""A workload's inventory as text and as CSV."""

import csv
import io
from collections.abc import Sequence

from harness.contract.abilities.inventory import Bar, Cell, Column, Inventory
from harness.model.errors import printable
from reports.core.formatting import amount, in_bytes, number


def with_unit(column: Column) -> str:
    """Return the heading of a column, with its unit in brackets if it has one."""
    return f"{column.heading} ({column.unit})" if column.unit else column.heading


def text_of(value: Cell, column: Column) -> str:
    """Write a value of an inventory in the way of its column: text, bytes or number."""
    if isinstance(value, str):
        return printable(value)
    if column.kind == "bytes":
        return in_bytes(value)
    return number(float(value), trim=True) if column.kind == "number" else f"{value:,}"


def range_of(bar: Bar, column: Column) -> str:
    """Write the range of values that a bar of a distribution counts."""
    write = in_bytes if column.kind == "bytes" else amount
    if bar.low == bar.high:
        return write(bar.low) if column.kind != "number" else number(bar.low, trim=True)
    return f"{write(bar.low)} to {write(bar.high)}"


def largest_title(inventory: Inventory, sort: str, shown: int) -> str:
    """Return a title like `The 10 largest tables of 60 by bytes`, with 10 rows `shown` of 60."""
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
    """Return rows as CSV, with unprintable characters of texts escaped."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in inventory.columns])
    for row in rows:
        writer.writerow(
            printable(cell) if isinstance(cell, str) else int(cell) if cell == int(cell) else cell
            for cell in row
        )
    return text.getvalue()
