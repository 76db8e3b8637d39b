"""A results file that a command measures into: locked, repaired, resumed, with progress shown."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.measuring.request import Request
from harness.model.cell import Cell
from harness.model.errors import printable
from harness.model.settings import Settings
from harness.store.lock import hold
from harness.store.results import Damage, read_cells, set_damaged_aside
from harness.suites.sweep import Finished, Workers, is_outdated, resumed, set_aside, sweep
from reports.core.formatting import plural
from shardbench.options import messages, warn
from shardbench.progress import TimeLeft, progress_display

_LONGEST = 100
_MOST_NAMED = 5


@contextmanager
def measuring_into(results: Path) -> Iterator[None]:
    """Hold a results file while the block measures into it; damaged lines are moved out of it."""
    with hold(results):
        damaged = set_damaged_aside(results)
        if damaged:
            _tell(damaged)
            messages.print(f"They are moved to {results}.damaged.")
        yield


def keep_earlier(results: Path) -> None:
    """Set earlier results aside, and say where they are kept."""
    if kept := set_aside(results):
        messages.print(f"Earlier results are kept in {kept}.")


def tell_damaged(results: Path) -> None:
    """Warn of the damaged lines of a results file, which are left out."""
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
