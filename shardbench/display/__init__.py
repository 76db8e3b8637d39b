"""Texts and tables that commands show on a terminal."""

import os

from rich.console import Console, RenderableType

_PIPED_WIDTH = 80


def show(rendered: RenderableType) -> None:
    """Print to standard output: as wide as the terminal or COLUMNS, else 80 columns wide."""
    # A name such as `[red]` or `:tm:` is a name.
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        console.width = _PIPED_WIDTH  # rich would take that of the terminal behind standard input
    console.print(rendered)
