"""Progress on standard error: a bar on a terminal, else a line for each stage or problem."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from harness.measuring.jobs import Event

_OTHER_COLUMNS = 34  # characters of the bar, the time, and the spaces between


class ProgressDisplay:
    """Shows what a command does now.

    Call it with each event of a measurement, or call `stage`. `total` is the number of problems if
    there are several; `begun` and `finished` count them.
    """

    def __init__(self, bar: Progress, total: int = 0) -> None:
        self._bar, self._total = bar, total
        self._done = self._failures = 0
        self._running: dict[str, None] = {}
        self._printed = ""
        self._overall = bar.add_task("", total=total, visible=total > 0)
        self._call = bar.add_task("starting", total=None)
        self._show_problems()

    def stage(self, name: str, done: int = 0, total: int | None = None) -> None:
        """Show the name of a stage, and how much of it is done; a new one gets a line in a pipe."""
        self._bar.update(self._call, description=name, completed=done, total=total)
        self._print_new(name)

    def __call__(self, event: Event) -> None:
        """Show an event; without a terminal, print each new step of a single comparison."""
        text = event.stage
        if event.steps:
            text += f" {event.step}/{event.steps}," if event.steps > 1 else ""
            text += f" {event.variant}"
        if not self._bar.console.is_terminal:
            if not self._total:
                self._print_new(
                    text + (f", at most {event.at_most_s:g} s" if event.at_most_s else "")
                )
            return
        done, total = event.step - 1, event.steps or None
        if event.progress is not None:
            done, total = event.progress.done, event.progress.total
            amount = f"{done:,} of {total:,}" if total else f"{done:,}"
            text += f": {amount} {event.progress.unit}"
        elif event.doing:
            text += f": {event.doing}"
        elif not event.steps:
            text += f", block {event.step}"
        self._bar.update(self._call, description=text, total=total, completed=done)

    def begun(self, name: str) -> None:
        """Show a running problem."""
        self._running[name] = None
        self._show_problems()

    def finished(self, name: str, outcome: str, failures: int = 0) -> None:
        """Print the outcome of a finished problem, and update the counts."""
        self._done += 1
        self._failures += failures
        self._running.pop(name, None)
        self._print(f"{self._done}/{self._total} {name}: {outcome}")
        self._show_problems()

    def _show_problems(self) -> None:
        """Show the counts of problems, the first that runs, and the number of others."""
        first = next(iter(self._running), "")
        more = f" and {len(self._running) - 1} more" if len(self._running) > 1 else ""
        failed = f", {self._failures} failed" if self._failures else ""
        text = f"{self._done} of {self._total} problems{failed} {first}{more}"
        self._bar.update(self._overall, description=text, completed=self._done)

    def _print_new(self, text: str) -> None:
        if not self._bar.console.is_terminal and text != self._printed:
            self._print(text)
        self._printed = text

    def _print(self, text: str) -> None:
        self._bar.console.print(text, markup=False, soft_wrap=True, highlight=False)


@contextmanager
def progress_display(title: str = "", total: int = 0) -> Iterator[ProgressDisplay]:
    """Show progress on standard error while the `with` block runs; see `ProgressDisplay`."""
    console = Console(stderr=True)
    if title and console.is_terminal:
        console.print(title, markup=False, highlight=False)
    width = max(20, console.width - _OTHER_COLUMNS)
    column = Column(no_wrap=True, overflow="ellipsis", max_width=width)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=column),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        yield ProgressDisplay(bar, total)
