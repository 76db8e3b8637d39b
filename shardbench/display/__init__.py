"""Texts and tables that commands show on a terminal."""

from rich.console import Console, RenderableType

_PIPED_WIDTH = 160


def show(rendered: RenderableType) -> None:
    """Print to standard output, at the terminal's width or wide where it is piped."""
    # A name such as `[red]` or `:tm:` is a name.
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    console.print(rendered)
