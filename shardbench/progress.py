"""The progress display on standard error: silent where that is not a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from harness.following import Event


class ProgressDisplay:
    """Shows the latest event; call it with events."""

    def __init__(self, bar: Progress, total: int | None) -> None:
        self._bar = bar
        self._overall = bar.add_task("problems", total=total) if total else None
        self._call = bar.add_task("starting", total=None)

    def __call__(self, event: Event) -> None:
        """Show an event."""
        if event.steps:
            text = f"{event.stage} {event.step}/{event.steps}, {event.variant}"
        else:
            text = f"{event.stage}, block {event.step}, {event.variant}"
        done, total = event.step - 1, event.steps or None
        if event.progress is not None:
            done, total = event.progress.done, event.progress.total
            amount = f"{done:,} of {total:,}" if total else f"{done:,}"
            text += f": {amount} {event.progress.unit}"
        self._bar.update(self._call, description=text, total=total, completed=done)

    def finished(self, text: str) -> None:
        """Say that a problem is done."""
        if self._overall is not None:
            self._bar.advance(self._overall)
        self._bar.console.print(text, markup=False, soft_wrap=True, highlight=False)


@contextmanager
def progress_display(title: str, total: int | None = None) -> Iterator[ProgressDisplay]:
    """Show progress on standard error while the block runs."""
    console = Console(stderr=True)
    if title and console.is_terminal:
        console.print(title, markup=False, highlight=False, soft_wrap=True)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        yield ProgressDisplay(bar, total)
