"""A sweep as a user follows it: what is measured already, what is over, what is left."""

from collections.abc import Sequence
from pathlib import Path

from harness.measuring.request import Request
from harness.model.cell import Cell
from harness.model.errors import printable
from harness.model.settings import Settings
from harness.suites.sweep import Finished, Workers, sweep
from reports.formatting import plural
from shardbench.options import messages
from shardbench.progress import TimeLeft, progress_display

_LONGEST = 100


def measure(
    requests: Sequence[Request], results: Path, settings: Settings, workers: Workers | None = None
) -> list[Finished]:
    """Measure what is left of a suite, and tell how it goes on standard error."""
    left = [request for request in requests if not request.is_measured]
    _tell_measured(len(requests) - len(left), len(requests), results)
    guess = TimeLeft([request.family.name for request in left], workers.at_once() if workers else 1)
    done: list[Finished] = []
    running: dict[str, None] = {}
    with progress_display("", total=len(left), left=guess) as show:

        def begun(request: Request) -> None:
            running[_title(request)] = None
            show.running(list(running))

        for each in sweep(left, results, settings, show, workers=workers, begun=begun):
            done.append(each)
            failures = sum(cell.status == "failed" for cell in each.cells) + bool(each.refused)
            show.finished(told(each), each.request.family.name, each.seconds, failures)
            running.pop(_title(each.request), None)
            show.running(list(running))
    return done


def _tell_measured(done: int, total: int, results: Path) -> None:
    if done:
        messages.print(
            f"{done} of {plural(total, 'problem')} {'is' if done == 1 else 'are'} measured already "
            f"in {results}; --fresh measures {'it' if done == 1 else 'them'} again.",
            soft_wrap=True,
        )


def told(finished: Finished) -> str:
    """Say in a line what came of a problem."""
    ended = [
        f"{cell.variant} {cell.status}" + (f" ({short(cell)})" if cell.status == "failed" else "")
        for cell in finished.cells
        if cell.status != "ok"
    ]
    return (
        f"{_title(finished.request)}: {printable(finished.refused or ', '.join(ended) or 'all ok')}"
    )


def short(cell: Cell) -> str:
    """Return the beginning of a cell's reason, in one line."""
    reason = " ".join((cell.reason or "").split())
    return printable(reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}...")


def _title(request: Request) -> str:
    return printable(f"{request.family.name} on {request.given}")
