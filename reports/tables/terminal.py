"""Tables on a terminal, by rich."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.bar import Bar
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from reports.formatting import MISSING
from reports.tables.alignment import aligned
from reports.tables.table import Entry, Table

_STYLES = {"bad": "red", "good": "green", "warn": "yellow", "soft": "dim", "plain": "cyan"}
_WIDTH, _BETWEEN = 80, 2
_LEAST_BAR, _MOST_BAR = 8, 30
_SHORTEST_NAME, _LONGEST_NAME = 10, 28


def as_terminal(table: Table, title: str = "") -> RichTable:
    """Return a table as rich shows it.

    One with bars fits 80 columns: names that are too long are cut, and bars get what is left.
    """
    shown = RichTable(
        title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    for place, column in enumerate(table.columns):
        is_number = column.kind == "number"
        words = (word for row in table.rows for word in row[place].text.split())
        shown.add_column(
            column.title,
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
            min_width=min(max(map(len, words), default=0), column.least) or None,
        )
    bars = [place for place, column in enumerate(table.columns) if column.kind == "bar"]
    room = _fit(table, shown) if bars else 0
    lengths = (row[place].sort for row in table.rows for place in bars if _is_number(row[place]))
    most = max(lengths, default=0.0)
    for row in _by_the_point(table):
        cells: list[RenderableType] = [_text(entry) for entry in row]
        for place in bars:
            if _is_number(row[place]):
                cells[place] = Bar(most or 1.0, 0, row[place].sort, width=room, color="blue")
        shown.add_row(*cells)
    if room < _LEAST_BAR:
        shown.columns = [c for at, c in enumerate(shown.columns) if at not in bars]
    return shown


def _fit(table: Table, shown: RichTable) -> int:
    """Let texts share what numbers leave of the terminal; return what is left for a bar."""
    widths = {}
    for place, column in enumerate(table.columns):
        if column.kind != "bar":
            entries = (_text(row[place]).cell_len for row in table.rows)
            widths[place] = max(*map(len, column.title.split("\n")), *entries, 0)
    names = [place for place in widths if table.columns[place].kind != "number"]
    taken = sum(width for place, width in widths.items() if place not in names)
    share = (_WIDTH - taken - _BETWEEN * len(widths)) // max(1, len(names))
    for place in names:
        widths[place] = min(widths[place], max(_SHORTEST_NAME, min(_LONGEST_NAME, share)))
        drawn = shown.columns[place]
        drawn.width, drawn.no_wrap, drawn.overflow = widths[place], True, "ellipsis"
    return min(_MOST_BAR, _WIDTH - sum(widths.values()) - _BETWEEN * len(widths))


def _by_the_point(table: Table) -> list[tuple[Entry, ...]]:
    """Return the rows, with the numbers of each column padded so that their points stand below."""
    columns = [
        [replace(entry, text=text) for entry, text in zip(entries, texts, strict=True)]
        for column, entries in zip(table.columns, zip(*table.rows, strict=True), strict=True)
        for texts in [
            aligned([_shown(entry) for entry in entries])
            if column.kind == "number"
            else [_shown(entry) for entry in entries]
        ]
    ]
    return list(zip(*columns, strict=True))


def _is_number(entry: Entry) -> bool:
    return entry.sort == entry.sort


def _text(entry: Entry) -> Text:
    return Text("-" if entry.text == MISSING else entry.text, style=_STYLES.get(entry.tone, ""))


@dataclass(frozen=True, slots=True)
class SplitTable:
    """A table whose columns stand beside the first as far as there is room.

    Those that do not fit follow below, with the first again.
    """

    table: Table
    title: str

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        title = self.title
        for places in self._groups(options.max_width):
            columns = tuple(self.table.columns[place] for place in places)
            rows = tuple(tuple(row[place] for place in places) for row in self.table.rows)
            yield as_terminal(Table(columns, rows), title)
            title = " "

    def _groups(self, most: int) -> Iterator[list[int]]:
        """Yield the places of columns that fit beside each other in so many of a terminal."""
        first, *widths = (
            max(len(column.title), *(len(row[place].text) for row in self.table.rows))
            for place, column in enumerate(self.table.columns)
        )
        group, taken = [0], first
        for place, width in enumerate(widths, start=1):
            if len(group) > 1 and taken + _BETWEEN + width > most:
                yield group
                group, taken = [0], first
            group.append(place)
            taken += _BETWEEN + width
        yield group
