"""Measure into a results file: lock it, repair it, and resume from it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.measuring.request import Request
from harness.model.cell import Cell
from harness.model.errors import printable
from harness.model.settings import Settings
from harness.store.lock import hold
from harness.store.results import Damage, append_cells, read_cells, set_damaged_aside
from harness.suites.sweep import Finished, Workers, resumed, set_aside, sweep, told_apart
from reports.core.formatting import plural
from shardbench.options import messages, warn
from shardbench.progress import progress_display

_LONGEST = 100
_MOST_NAMED = 5


@contextmanager
def measuring_into(results: Path) -> Iterator[None]:
    """Lock a results file in the `with` block; first move damaged lines to `FILE.damaged`."""
    with hold(results):
        damaged = set_damaged_aside(results)
        if damaged:
            _tell(damaged)
            messages.print(f"They are moved to {results}.damaged.")
        yield


def keep_earlier(results: Path) -> None:
    """Rename an earlier results file, and print its new name."""
    if kept := set_aside(results):
        messages.print(f"Earlier results are kept in {kept}.")


def tell_damaged(results: Path) -> None:
    """Warn about the damaged lines of a results file."""
    damaged: list[Damage] = []
    list(read_cells(results, damaged.append))
    _tell(damaged)


def _tell(damaged: list[Damage]) -> None:
    for damage in damaged[:_MOST_NAMED]:
        warn(f"Damaged: {damage}")
    if len(damaged) > _MOST_NAMED:
        more = len(damaged) - _MOST_NAMED
        warn(f"Damaged: {more} more lines.")


def measure(
    requests: Sequence[Request],
    results: Path,
    settings: Settings,
    fresh: bool,
    workers: Workers | None = None,
    then: Callable[[], None] = lambda: None,
) -> tuple[list[Request], list[Finished]]:
    """Measure the problems of a suite that have no stored results, and show progress.

    If stored cells have other code, versions or settings, or times of another machine, or if
    `fresh`, this renames their file; the other cells are kept, but not if `fresh`. Calls `then`
    after each problem. Returns the requests with their stored cells, and the new results.
    """
    site = workers.site if workers else None
    usable, outdated = told_apart(results, settings, site)
    if fresh:
        keep_earlier(results)
    elif outdated:
        for why, amount in outdated.items():
            messages.print(f"Not used: {plural(amount, 'cell')} in {results}, with {why}.")
        keep_earlier(results)
        append_cells(results, usable)
    requests = resumed(requests, results, settings, site)
    left = [request for request in requests if not request.is_measured]
    if stored := len(requests) - len(left):
        messages.print(
            f"{stored} of {plural(len(requests), 'problem')} {'is' if stored == 1 else 'are'} "
            f"measured already in {results}; --fresh measures {'it' if stored == 1 else 'them'} "
            "again."
        )
    done: list[Finished] = []
    with progress_display("", len(left)) as show:

        def begun(request: Request) -> None:
            show.begun(title_of(request))

        for problem in sweep(left, results, settings, show, workers=workers, begun=begun):
            done.append(problem)
            failed = sum(cell.status == "failed" for cell in problem.cells) + bool(problem.refused)
            show.finished(title_of(problem.request), _outcome(problem), failed)
            then()
    return requests, done


def _outcome(finished: Finished) -> str:
    """Return a problem's outcome as one line of text."""
    ended = ", ".join(
        f"{cell.variant} {cell.status}" + (f" ({short(cell)})" if cell.status == "failed" else "")
        for cell in finished.cells
        if cell.status != "ok"
    )
    return printable(finished.refused or ended or "all ok")


def short(cell: Cell) -> str:
    """Return a cell's reason as one line, cut to 100 characters."""
    reason = " ".join((cell.reason or "").split())
    return printable(reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}...")


def title_of(request: Request) -> str:
    """Return a request's family and problem as text, e.g. `embedding on ...`."""
    return printable(f"{request.family.name} on {request.given}")
