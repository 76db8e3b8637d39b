"""Measure into a results file: lock it, repair it, and resume from it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from harness.measuring.request import Request
from harness.model.settings import Settings
from harness.store.cells import CellStore
from harness.store.keys import unused
from harness.store.lines import Damage, Entry, Store, hold
from harness.suites.cluster import Cluster
from harness.suites.sweep import Finished, resumed, sweep, tasks_of
from reports.core.formatting import plural
from shardbench.command import InterruptedCommand
from shardbench.options import messages, warn
from shardbench.progress import progress_display

_MOST_NAMED = 5


@contextmanager
def measuring_into(store: Store[Any], fresh: bool = False) -> Iterator[None]:
    """Lock a results file in the `with` block; first move damaged lines to `FILE.damaged`.

    If `fresh`, this renames earlier results. An interrupt in the block becomes one that tells the
    file and how to resume.
    """
    with hold(store.path):
        if damaged := store.set_damaged_aside():
            tell_damaged(damaged)
            messages.print(f"They are moved to {store.path}.damaged.")
        if fresh:
            keep_earlier(store)
        try:
            yield
        except InterruptedCommand:
            raise
        except KeyboardInterrupt:
            how = "the same command without --fresh" if fresh else "the same command"
            raise InterruptedCommand(
                f"the results so far are kept in {store.path}; {how} goes on."
            ) from None


def keep_earlier(store: Store[Any], kept: Iterable[Entry[Any]] = ()) -> None:
    """Rename an earlier results file, except for the entries `kept`, and print its new name."""
    if renamed := store.set_aside(kept):
        messages.print(f"Earlier results are kept in {renamed}.")


def tell_damaged(damaged: Sequence[Damage]) -> None:
    """Warn about the damaged lines of a results file."""
    for damage in damaged[:_MOST_NAMED]:
        warn(f"Damaged: {damage}")
    if len(damaged) > _MOST_NAMED:
        warn(f"Damaged: {len(damaged) - _MOST_NAMED} more lines.")


def measure(
    requests: Sequence[Request],
    store: CellStore,
    settings: Settings,
    cluster: Cluster | None = None,
    at_once: int = 1,
    then: Callable[[], None] = lambda: None,
) -> tuple[list[Request], list[Finished]]:
    """Measure the problems of a suite that have no stored results, and show progress.

    If stored cells have other code, versions or settings, or times of another machine, this renames
    their file, and keeps the other cells. Calls `then` after each problem. Returns the requests
    with their stored cells, and the new results.
    """
    tasks = tasks_of(requests, settings, several=cluster is not None)
    reasons, used = unused(tasks, store.entries)
    for why, amount in reasons.items():
        messages.print(f"Not used: {plural(amount, 'cell')} in {store.path}, with {why}.")
    if reasons:
        keep_earlier(store, used)
    requests = resumed(tasks, store)
    left = [request for request in requests if not request.is_measured]
    if len(left) < len(requests):
        messages.print(
            f"Measured already in {store.path}: {len(requests) - len(left)} of "
            f"{plural(len(requests), 'problem')}; --fresh measures again."
        )
    done: list[Finished] = []
    with progress_display(total=len(left)) as show:
        if cluster:
            running = cluster.sweep(left, store, settings)
        else:
            running = sweep(left, store, settings, show, at_once=at_once, begun=show.begun)
        for problem in running:
            done.append(problem)
            failed = sum(cell.status == "failed" for cell in problem.cells) + bool(problem.refused)
            show.finished(problem.request.title, problem.outcome, failed)
            then()
    return requests, done
