"""Progress on standard error: a bar on a terminal, else a line for each problem."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from harness.measuring.monitor import Event
from harness.measuring.time_left import TimeLeft

_SILENT_SECONDS = 10.0
_OTHER_COLUMNS = 34  # characters of the bar, the time, and the spaces between


def time_left(seconds: float | None) -> str:
    """Return a remaining time as text, e.g. `about 15 s left`; "" if it is unknown or over."""
    return f"{_roughly(seconds)} left" if seconds else ""


def _roughly(seconds: float) -> str:
    if seconds < 60:
        step = 1 if seconds < 10 else 5
        return f"about {max(1, round(seconds / step) * step)} s"
    if seconds < 90:
        return "about a minute"
    if seconds < 90 * 60:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"


class ProgressDisplay:
    """Shows the latest event of a measurement; call it with each event.

    `left` estimates the remaining time of several problems, by their names.
    """

    def __init__(self, bar: Progress, left: TimeLeft | None = None) -> None:
        self._bar, self._left = bar, left or TimeLeft({})
        self._total, self._done, self._failures = len(self._left.names), 0, 0
        self._running: dict[str, None] = {}
        self._step = ""
        total = self._total
        self._overall = bar.add_task(self._standing(), total=total) if total else None
        self._call = bar.add_task("starting", total=None)

    def __call__(self, event: Event) -> None:
        """Show an event."""
        text = (
            _step(event) if event.steps else f"{event.stage}, block {event.step}, {event.variant}"
        )
        step = _step(event) if event.steps else event.stage
        # Without a terminal, print each new step of a single comparison.
        if not self._total and step != self._step and not self._bar.console.is_terminal:
            self._step = step
            said = "; ".join(filter(None, (step, time_left(event.left_s))))
            self._bar.console.print(said, markup=False, soft_wrap=True, highlight=False)
        if self._overall is not None:
            if not self._running:  # without `begun`, the problems run one after another
                self.begun(next(iter(self._left.names), ""))
            if event.left_s is not None:
                self._left.expects(next(iter(self._running)), event.left_s)
            self._bar.update(self._overall, description=self._standing())
        done, total = event.step - 1, event.steps or None
        if event.progress is not None:
            done, total = event.progress.done, event.progress.total
            amount = f"{done:,} of {total:,}" if total else f"{done:,}"
            text += f": {amount} {event.progress.unit}"
        elif event.doing:
            text += f": {event.doing}"
        text = ", ".join(filter(None, (text, time_left(event.left_s), self._now_running())))
        self._bar.update(self._call, description=text, total=total, completed=done)

    def begun(self, name: str) -> None:
        """Show the first running problem, and the number of others."""
        self._running[name] = None
        self._left.begins(name)
        self._show_running()

    def finished(self, name: str, outcome: str, failures: int = 0) -> None:
        """Print the outcome of a finished problem, and update the counts and the remaining time."""
        self._done += 1
        self._failures += failures
        self._left.ended(name)
        self._running.pop(name, None)
        text = f"{self._done}/{self._total} {name}: {outcome}"
        if not self._bar.console.is_terminal and (left := time_left(self._left.seconds())):
            text += f"; {left}"
        if self._overall is not None:
            self._bar.update(self._overall, advance=1, description=self._standing())
        self._bar.console.print(text, markup=False, soft_wrap=True, highlight=False)
        self._show_running()

    def _show_running(self) -> None:
        self._bar.update(self._call, description=f"measuring {self._now_running()}", total=None)

    def _now_running(self) -> str:
        first = next(iter(self._running), "")
        return first + (f" and {len(self._running) - 1} more" if len(self._running) > 1 else "")

    def _standing(self) -> str:
        failed = f"{self._failures} failed" if self._failures else ""
        parts = [f"{self._done} of {self._total} problems", time_left(self._left.seconds()), failed]
        return ", ".join(filter(None, parts))


def _step(event: Event) -> str:
    which = f" {event.step}/{event.steps}," if event.steps > 1 else ""
    return f"{event.stage}{which} {event.variant}"


@contextmanager
def progress_display(title: str, left: TimeLeft | None = None) -> Iterator[ProgressDisplay]:
    """Show progress on standard error while the `with` block runs; see `ProgressDisplay`."""
    console = Console(stderr=True)
    if title and console.is_terminal:
        console.print(title, markup=False, highlight=False, soft_wrap=True)
    with progress_bar(console) as bar:
        yield ProgressDisplay(bar, left)


@contextmanager
def stage_display() -> Iterator[Callable[[str], None]]:
    """Show the stage of a command on standard error; the `with` block calls a function with it.

    Without a terminal, each stage gets a line, and another line every ten seconds that it takes.
    """
    console = Console(stderr=True)
    stage, began, has_changed = "", 0.0, threading.Event()
    is_over = False

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True, highlight=False)

    def repeat() -> None:
        while not is_over:
            if has_changed.wait(_SILENT_SECONDS):
                has_changed.clear()
            elif stage:
                say(f"{stage}, {time.monotonic() - began:.0f} s so far")

    with progress_bar(console) as bar:
        task = bar.add_task("starting", total=None)

        def begin(text: str) -> None:
            nonlocal stage, began
            stage, began = text, time.monotonic()
            has_changed.set()
            bar.update(task, description=text)
            if not console.is_terminal:
                say(text)

        thread = threading.Thread(target=repeat, daemon=True)
        if not console.is_terminal:
            thread.start()
        try:
            yield begin
        finally:
            is_over = True
            has_changed.set()


def progress_bar(console: Console) -> Progress:
    """Return the progress bar for a console; it is disabled without a terminal."""
    return Progress(
        SpinnerColumn(),
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(
                no_wrap=True, overflow="ellipsis", max_width=max(20, console.width - _OTHER_COLUMNS)
            ),
        ),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
