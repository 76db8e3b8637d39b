"""What `shardbench workload` shows: what a workload holds, and what became of an import."""

from collections.abc import Iterator, Sequence

from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.contract.inventory import Cell, Column, Imported, Inventory, distribution
from reports.inventories import largest_title, range_of, text_of

_WIDTH = 80
_BESIDE = 2
_LEAST_BAR, _MOST_BAR = 8, 30
_SHORTEST_NAME, _LONGEST_NAME = 10, 28


def inventory(held: Inventory, sort: str, most: int) -> RenderableType:
    """Show an inventory: a summary, how figures are spread, and the largest parts with bars."""
    return Group(
        Text(held.title, style="bold"),
        Text(held.summary),
        *(Text(f"{note}.", style="dim") for note in held.notes),
        "",
        *_distributions(held),
        _largest(held, sort, most),
    )


def outcome(imported: Imported, sort: str) -> RenderableType:
    """Show what an import brought, and what was assumed, changed and left out."""
    held = imported.inventory
    return Group(
        Text(held.title, style="bold"),
        Text(held.summary),
        "",
        _largest(held, sort, 5),
        *_said("Assumed, since the source does not say it", imported.assumed),
        *_said("Changed", imported.changed),
        *_said("Left out", imported.left_out),
    )


def _said(title: str, sentences: Sequence[str]) -> Iterator[RenderableType]:
    if sentences:
        yield ""
        yield Text(f"{title}:", style="yellow")
        for sentence in sentences:
            line = Table.grid(padding=(0, 1))
            line.add_row("-", Text(f"{sentence}."))
            yield line


def _distributions(held: Inventory) -> Iterator[RenderableType]:
    """Yield the histograms, two beside each other."""
    width = (_WIDTH - _BESIDE) // 2
    drawn = [_histogram(held, column, width) for column in held.drawn]
    for place in range(0, len(drawn), 2):
        beside = Table.grid(padding=(0, _BESIDE, 0, 0))
        pair = drawn[place : place + 2]
        for _ in pair:
            beside.add_column(width=width)
        beside.add_row(*pair)
        yield beside
        yield ""


def _histogram(held: Inventory, column: Column, width: int) -> Table:
    bars = distribution(held, column)
    labels = [range_of(bar, column) for bar in bars]
    counts = [f"{bar.parts:,}" for bar in bars]
    unit = f" ({column.unit})" if column.unit else ""
    table = Table(
        title=f"{column.heading}{unit}", title_justify="left", box=None, pad_edge=False,
        show_header=False, title_style="bold", padding=(0, 1, 0, 0),
    )  # fmt: skip
    room = width - max(map(len, labels), default=0) - max(map(len, counts), default=0) - 2
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(width=max(room, 1))
    most = max((bar.parts for bar in bars), default=1)
    for bar, label, count in zip(bars, labels, counts, strict=True):
        table.add_row(label, count, _bar(most, bar.parts, max(room, 1)))
    return table


def _bar(most: float, value: float, width: int) -> Bar:
    return Bar(most or 1.0, 0, value, width=width, color="blue")


def _largest(held: Inventory, sort: str, most: int) -> Table:
    rows = held.largest(sort, most)
    is_number = held.columns[held.place(sort)].kind != "text"
    by = held.place(sort if is_number else held.sort)
    shown = [place for place, column in enumerate(held.columns) if column.is_shown or place == by]
    columns = [held.columns[place] for place in shown]
    texts = [[text_of(row[place], held.columns[place]) for place in shown] for row in rows]
    table = Table(
        title=largest_title(held, sort, len(rows)), title_justify="left", box=None, pad_edge=False,
        header_style="bold", title_style="",
    )  # fmt: skip
    widths = _widths(columns, texts)
    for column, width in zip(columns, widths, strict=True):
        is_text = column.kind == "text"
        table.add_column(
            column.heading,
            justify="left" if is_text else "right",
            width=width,
            no_wrap=True,
            overflow="ellipsis",
        )
    room = min(_MOST_BAR, _WIDTH - sum(widths) - _BESIDE * len(widths))
    if room >= _LEAST_BAR:
        table.add_column(held.columns[by].heading if not is_number else "", width=room)
    heaviest = max((_number(row[by]) for row in rows), default=0.0)
    for row, text in zip(rows, texts, strict=True):
        bar = [_bar(heaviest, _number(row[by]), room)] if room >= _LEAST_BAR else []
        table.add_row(*map(Text, text), *bar)
    return table


def _widths(columns: Sequence[Column], texts: Sequence[Sequence[str]]) -> list[int]:
    """Return how wide each column is; texts share what numbers leave of the terminal."""
    widest = [
        max(len(column.heading), *(Text(text[place]).cell_len for text in texts), 0)
        for place, column in enumerate(columns)
    ]
    is_text = [column.kind == "text" for column in columns]
    numbers = sum(width for width, text in zip(widest, is_text, strict=True) if not text)
    room = (_WIDTH - numbers - _BESIDE * len(columns)) // max(1, sum(is_text))
    most = max(_SHORTEST_NAME, min(_LONGEST_NAME, room))
    return [
        min(width, most) if text else width for width, text in zip(widest, is_text, strict=True)
    ]


def _number(cell: Cell) -> float:
    return 0.0 if isinstance(cell, str) else float(cell)
