"""Tables on a terminal, by rich."""

from collections.abc import Iterable

from rich.table import Table


def new_table(title: str, *columns: str, right: Iterable[str] = ()) -> Table:
    """Return an empty table; the columns named in `right` hold numbers."""
    table = Table(
        title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    for column in columns:
        is_number = column in right
        table.add_column(
            column, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold"
        )
    return table
