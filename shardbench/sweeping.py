"""A sweep as a user follows it: problems measured before, finished and remaining."""

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
    """Measure the remaining problems of a suite, with progress on standard error.

    Results of other code or settings are set aside; with `fresh`, all results are. Returns the
    requests with their stored cells, and the problems measured now.
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
    kinds = [request.family.name for request in left]
    left_time = TimeLeft(kinds, workers.at_once() if workers else 1)
    done: list[Finished] = []
    running: dict[str, None] = {}
    with progress_display("", total=len(left), left=left_time) as show:

        def begun(request: Request) -> None:
            running[title_of(request)] = None
            show.running(list(running))

        for problem in sweep(left, results, settings, show, workers=workers, begun=begun):
            done.append(problem)
            failed = sum(cell.status == "failed" for cell in problem.cells) + bool(problem.refused)
            show.finished(_outcome(problem), problem.request.family.name, problem.seconds, failed)
            running.pop(title_of(problem.request), None)
            show.running(list(running))
    return requests, done


def _outcome(finished: Finished) -> str:
    """Describe a problem's outcome in one line."""
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
