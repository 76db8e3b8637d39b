"""The output of commands on a terminal."""

import os

from rich.console import Console, RenderableType

_PIPED_WIDTH = 80


def show(rendered: RenderableType) -> None:
    """Print to standard output, as wide as the terminal or COLUMNS, else 80 columns wide."""
    # Without markup, because names may contain `[red]` or `:tm:`.
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        console.width = _PIPED_WIDTH  # else rich uses the width of the terminal on standard input
    console.print(rendered)
