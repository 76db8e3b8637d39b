"""The output of commands on a terminal."""

import os
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

_PIPED_WIDTH = 80


def show(rendered: RenderableType) -> None:
    """Print to standard output, as wide as the terminal or COLUMNS, else 80 columns wide."""
    # Without markup, because names may contain `[red]` or `:tm:`.
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        console.width = _PIPED_WIDTH  # else rich uses the width of the terminal on standard input
    console.print(rendered)


def listed(sentences: Iterable[str], mark: str = "-", style: str = "") -> RenderableType:
    """Render sentences as a list, each after a mark; `{}` in the mark is its number."""
    table = Table.grid(padding=(0, 1))
    for number, sentence in enumerate(sentences, start=1):
        table.add_row(mark.format(number), Text(sentence), style=style)
    return table
