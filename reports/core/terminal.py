"""Tables for a terminal, drawn with rich."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.bar import Bar
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from reports.core.formatting import MISSING
from reports.core.table import Entry, Table

_STYLES = {"bad": "red", "good": "green", "warn": "yellow", "soft": "dim", "plain": "cyan"}
_BETWEEN = 2
_LEAST_BAR, _MOST_BAR = 8, 30
_SHORTEST_NAME, _LONGEST_NAME = 10, 28
_NUMBER = re.compile(r"(?P<whole>[-—]|\D*\d[\d,]*)(?P<rest>.*)", re.DOTALL)


def as_terminal(table: Table, title: str = "") -> RenderableType:
    """Return a table as an object that rich prints."""
    return _Fitted(_by_the_point(table), title)


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A table fitted to the terminal's width: texts are wrapped, numbers are never cut.

    Columns that do not fit are printed below, next to a copy of the first column. In a table with
    bars, long names are cut, and the bars get the remaining width.
    """

    table: Table
    title: str

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        table, title, most = self.table, self.title, options.max_width
        for places in _groups(table, most):
            columns = tuple(table.columns[place] for place in places)
            rows = tuple(tuple(row[place] for place in places) for row in table.rows)
            yield _drawn(Table(columns, rows), title, most)
            title = " "


def _groups(table: Table, most: int) -> Iterator[list[int]]:
    """Yield lists of column indices that fit into `most` characters; each list starts with 0."""
    first, *widths = (_least_width(table, place) for place in range(len(table.columns)))
    group, taken = [0], first
    for place, width in enumerate(widths, start=1):
        if len(group) > 1 and taken + _BETWEEN + width > most:
            yield group
            group, taken = [0], first
        group.append(place)
        taken += _BETWEEN + width
    yield group


def _least_width(table: Table, place: int) -> int:
    """Return a column's minimum width: its longest number, or its longest word up to a limit."""
    column = table.columns[place]
    if column.kind == "bar":
        return 0
    texts = [*column.title.split("\n"), *(row[place].text for row in table.rows)]
    if column.kind == "number":
        return max(map(len, texts))
    longest = max((len(word) for text in texts for word in text.split()), default=0)
    return min(longest, column.least or _SHORTEST_NAME)


def _drawn(table: Table, title: str, most: int) -> RichTable:
    shown = RichTable(
        title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    for place, column in enumerate(table.columns):
        is_number = column.kind == "number"
        shown.add_column(
            column.title,
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
            min_width=_least_width(table, place) or None,
        )
    bars = [place for place, column in enumerate(table.columns) if column.kind == "bar"]
    room = _fit(table, shown, most) if bars else 0
    lengths = (row[place].sort for row in table.rows for place in bars if _is_number(row[place]))
    longest = max(lengths, default=0.0)
    for row in table.rows:
        cells: list[RenderableType] = [_text(entry) for entry in row]
        for place in bars:
            if _is_number(row[place]):
                cells[place] = Bar(longest or 1.0, 0, row[place].sort, width=room, color="blue")
        shown.add_row(*cells)
    if room < _LEAST_BAR:
        shown.columns = [c for at, c in enumerate(shown.columns) if at not in bars]
    return shown


def _fit(table: Table, shown: RichTable, most: int) -> int:
    """Divide the width left by numbers among the text columns; return the width left for bars."""
    widths = {}
    for place, column in enumerate(table.columns):
        if column.kind != "bar":
            entries = (_text(row[place]).cell_len for row in table.rows)
            widths[place] = max(*map(len, column.title.split("\n")), *entries, 0)
    names = [place for place in widths if table.columns[place].kind != "number"]
    taken = sum(width for place, width in widths.items() if place not in names)
    share = (most - taken - _BETWEEN * len(widths)) // max(1, len(names))
    for place in names:
        widths[place] = min(widths[place], max(_SHORTEST_NAME, min(_LONGEST_NAME, share)))
        drawn = shown.columns[place]
        drawn.width, drawn.no_wrap, drawn.overflow = widths[place], True, "ellipsis"
    return min(_MOST_BAR, most - sum(widths.values()) - _BETWEEN * len(widths))


def _is_number(entry: Entry) -> bool:
    return entry.sort == entry.sort


def _text(entry: Entry) -> Text:
    shown = entry.text.replace(MISSING, "-") if entry.text.strip() == MISSING else entry.text
    return Text(shown, style=_STYLES.get(entry.tone, ""), justify="left")


def _by_the_point(table: Table) -> Table:
    """Pad the numbers of each column so that their decimal points are aligned."""
    columns = [list(entries) for entries in zip(*table.rows, strict=True)]
    for place, column in enumerate(table.columns[: len(columns)]):
        if column.kind == "number":
            heading = max(map(len, column.title.split("\n")))
            texts = aligned([entry.text for entry in columns[place]], heading)
            entries = zip(columns[place], texts, strict=True)
            columns[place] = [replace(entry, text=text) for entry, text in entries]
    return Table(table.columns, tuple(zip(*columns, strict=True)))


def aligned(texts: Sequence[str], width: int = 0) -> list[str]:
    """Pad texts to one length, at least `width`, with the points of their first numbers aligned.

    A lone dash is aligned with whole numbers, any other text without a number to the right.
    """
    found = [_NUMBER.fullmatch(text) for text in texts]
    after = max((len(match["rest"]) for match in found if match), default=0)
    padded = [
        match["whole"] + match["rest"].ljust(after) if match else text
        for text, match in zip(texts, found, strict=True)
    ]
    width = max([width, *map(len, padded)])
    return [text.rjust(width) for text in padded]
