"""A sweep as a user follows it: what is measured already, what is over, what is left."""

from collections.abc import Sequence
from pathlib import Path

from harness.measuring.request import Request
from harness.model.cell import Cell
from harness.model.errors import printable
from harness.model.settings import Settings
from harness.suites.sweep import Finished, Workers, is_outdated, resumed, sweep
from reports.core.formatting import plural
from shardbench.options import messages
from shardbench.progress import TimeLeft, progress_display
from shardbench.results_file import keep_earlier

_LONGEST = 100


def measure(
    requests: Sequence[Request],
    results: Path,
    settings: Settings,
    fresh: bool,
    workers: Workers | None = None,
) -> tuple[list[Request], list[Finished]]:
    """Measure what is left of a suite, and tell how it goes on standard error.

    What other code or settings have measured is set aside, and where it is to be `fresh`, all is.
    Returns the requests with what was measured of them already, and those measured now.
    """
    site = workers.site if workers else None
    if fresh or is_outdated(results, settings, site):
        keep_earlier(results)
    requests = resumed(requests, results, settings, site)
    left = [request for request in requests if not request.is_measured]
    if stored := len(requests) - len(left):
        messages.print(
            f"{stored} of {plural(len(requests), 'problem')} {'is' if stored == 1 else 'are'} "
            f"measured already in {results}; --fresh measures {'it' if stored == 1 else 'them'} "
            "again."
        )
    guess = TimeLeft([request.family.name for request in left], workers.at_once() if workers else 1)
    done: list[Finished] = []
    running: dict[str, None] = {}
    with progress_display("", total=len(left), left=guess) as show:

        def begun(request: Request) -> None:
            running[title_of(request)] = None
            show.running(list(running))

        for each in sweep(left, results, settings, show, workers=workers, begun=begun):
            done.append(each)
            failures = sum(cell.status == "failed" for cell in each.cells) + bool(each.refused)
            show.finished(_outcome(each), each.request.family.name, each.seconds, failures)
            running.pop(title_of(each.request), None)
            show.running(list(running))
    return requests, done


def _outcome(finished: Finished) -> str:
    """Say in a line what came of a problem."""
    ended = ", ".join(
        f"{cell.variant} {cell.status}" + (f" ({short(cell)})" if cell.status == "failed" else "")
        for cell in finished.cells
        if cell.status != "ok"
    )
    return f"{title_of(finished.request)}: {printable(finished.refused or ended or 'all ok')}"


def short(cell: Cell) -> str:
    """Return the beginning of a cell's reason, in one line."""
    reason = " ".join((cell.reason or "").split())
    return printable(reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}...")


def title_of(request: Request) -> str:
    """Return a request's family and problem, for people."""
    return printable(f"{request.family.name} on {request.given}")
