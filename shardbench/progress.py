"""Progress on standard error: a bar on a terminal, else a line for each problem."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from harness.measuring.monitor import Event

_OTHER_COLUMNS = 34  # characters of the bar, the time, and the spaces between


class TimeLeft:
    """Estimates the remaining time of a suite from the times of its finished problems.

    It assumes that problems of the same kind, such as a family, take equally long.
    """

    def __init__(self, kinds: Sequence[str], at_once: int = 1) -> None:
        """Start with the kind of each problem; `at_once` problems run in parallel."""
        self._left = Counter(kinds)
        self._took: dict[str, list[float]] = {}
        self._at_once = max(1, at_once)

    def ended(self, kind: str, seconds: float) -> None:
        """Record that a problem of this kind finished after `seconds`."""
        self._left[kind] -= 1
        self._took.setdefault(kind, []).append(seconds)

    def seconds(self) -> float | None:
        """Return the remaining seconds, or None if no problem is finished or none is left."""
        every = [seconds for took in self._took.values() for seconds in took]
        left = {kind: count for kind, count in self._left.items() if count > 0}
        if not every or not left:
            return None
        means = {kind: fmean(self._took.get(kind, every)) for kind in left}
        at_once = min(self._at_once, sum(left.values()))
        return sum(count * means[kind] for kind, count in left.items()) / at_once


def roughly(seconds: float) -> str:
    """Return an estimated time as text, e.g. `about 5 min`."""
    if seconds < 90:
        return "about a minute"
    if seconds < 90 * 60:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"


class ProgressDisplay:
    """Shows the latest event of a measurement; call it with each event."""

    def __init__(self, bar: Progress, total: int | None, left: TimeLeft | None = None) -> None:
        self._bar = bar
        self._total, self._done = total, 0
        self._left = left
        self._failures = 0
        self._running = ""
        self._step = ""
        self._overall = bar.add_task(self._standing(), total=total) if total else None
        self._call = bar.add_task("starting", total=None)

    def __call__(self, event: Event) -> None:
        """Show an event."""
        text = (
            _step(event) if event.steps else f"{event.stage}, block {event.step}, {event.variant}"
        )
        self._tell_step(event)
        done, total = event.step - 1, event.steps or None
        if event.progress is not None:
            done, total = event.progress.done, event.progress.total
            amount = f"{done:,} of {total:,}" if total else f"{done:,}"
            text += f": {amount} {event.progress.unit}"
        elif event.doing:
            text += f": {event.doing}"
        text = ", ".join(filter(None, (text, _left(event), self._running)))
        self._bar.update(self._call, description=text, total=total, completed=done)

    def _tell_step(self, event: Event) -> None:
        """Print each new step, but only for a single comparison and without a terminal."""
        step = _step(event) if event.steps else event.stage
        if self._total is not None or step == self._step or self._bar.console.is_terminal:
            return
        self._step = step
        text = "; ".join(filter(None, (step, _left(event))))
        self._bar.console.print(text, markup=False, soft_wrap=True, highlight=False)

    def running(self, names: Sequence[str]) -> None:
        """Show the name of the first running problem, and the number of others."""
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        self._running = names[0] + more if names else ""
        self._bar.update(self._call, description=f"measuring {self._running}", total=None)

    def finished(self, text: str, kind: str = "", seconds: float = 0.0, failures: int = 0) -> None:
        """Print the outcome of a finished problem, and update the counts and the remaining time."""
        self._done += 1
        self._failures += failures
        if self._left is not None:
            self._left.ended(kind, seconds)
            text = f"{self._done}/{self._total} {text}"
            if not self._bar.console.is_terminal and (left := self._time_left()):
                text += f"; {left}"
        if self._overall is not None:
            self._bar.update(self._overall, advance=1, description=self._standing())
        self._bar.console.print(text, markup=False, soft_wrap=True, highlight=False)

    def _standing(self) -> str:
        failed = f"{self._failures} failed" if self._failures else ""
        parts = [f"{self._done} of {self._total} problems", self._time_left(), failed]
        return ", ".join(filter(None, parts))

    def _time_left(self) -> str:
        seconds = self._left.seconds() if self._left else None
        return "" if seconds is None else f"{roughly(seconds)} left"


def _step(event: Event) -> str:
    which = f" {event.step}/{event.steps}," if event.steps > 1 else ""
    return f"{event.stage}{which} {event.variant}"


def _left(event: Event) -> str:
    """Return the remaining time of a comparison as text, or "" if it is unknown."""
    if event.left_s is None:
        return ""
    if event.left_s < 60:
        return f"about {10 * max(1, math.ceil(event.left_s / 10))} s left"
    return f"{roughly(event.left_s)} left"


@contextmanager
def progress_display(
    title: str, total: int | None = None, left: TimeLeft | None = None
) -> Iterator[ProgressDisplay]:
    """Show progress on standard error while the `with` block runs.

    With `left`, lines have numbers and the estimated remaining time.
    """
    console = Console(stderr=True)
    if title and console.is_terminal:
        console.print(title, markup=False, highlight=False, soft_wrap=True)
    with progress_bar(console) as bar:
        yield ProgressDisplay(bar, total, left)


@contextmanager
def planning_display(variant: str) -> Iterator[None]:
    """Show on a terminal that a variant is planning; elsewhere show nothing."""
    with progress_display("") as listen:
        if Console(stderr=True).is_terminal:
            listen(Event("planning", variant, 1, 1))
        yield


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
