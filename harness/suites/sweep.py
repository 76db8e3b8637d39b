"""Measure the problems of a suite into a results file, and resume a stopped run."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

import msgspec

from harness.contract.registry import Registry, load_registry
from harness.measuring.comparison import Comparison
from harness.measuring.jobs import Listener, start_server_for
from harness.measuring.request import Request
from harness.model.cell import Cell
from harness.model.errors import UsageError, printable
from harness.model.files import legible
from harness.model.settings import Settings
from harness.store.cells import CellStore
from harness.store.keys import Task, missing

T = TypeVar("T")
R = TypeVar("R")

_LONGEST = 100


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished request, and the cells that it added to the results.

    `refused` is the reason if there are none: the problem could not be built or measured.
    """

    request: Request
    cells: list[Cell]
    refused: str = ""

    @property
    def outcome(self) -> str:
        """The outcome as one line of text: the variants that are not ok, with reasons."""
        ended = (
            f"{cell.variant} {cell.status} ({short_reason(cell)})"
            for cell in self.cells
            if cell.status != "ok"
        )
        return printable(self.refused or ", ".join(ended) or "all ok")


def short_reason(cell: Cell) -> str:
    """Return a cell's reason as one line, cut to 100 characters."""
    reason = " ".join((cell.reason or "").split())
    return printable(reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}...")


def tasks_of(
    requests: Sequence[Request], settings: Settings, several: bool = False, stale: bool = False
) -> list[Task[Request, Cell]]:
    """Return the tasks of a suite; raises UsageError for an unknown variant or workload.

    With `several`, cells of any machine count; with `stale`, those of other code count if the
    sources of their family are the same.
    """
    tasks: list[Task[Request, Cell]] = []
    for request in requests:
        key = request.key(settings)
        key = msgspec.structs.replace(
            key, machine="" if several else key.machine, code="" if stale else key.code
        )
        ids = (legible(str(request.cell_id(name))) for name in request.names())
        tasks.append(Task(request, frozenset(ids), key))
    return tasks


def resumed(tasks: Iterable[Task[Request, Cell]], store: CellStore) -> list[Request]:
    """Return the requests with their stored cells, so that only the others are measured."""
    return [
        replace(task.what, stored=task.values, is_measured=task.is_complete)
        for task in missing(tasks, store.entries)
    ]


def sweep(
    requests: Sequence[Request],
    store: CellStore,
    settings: Settings,
    listen: Listener = lambda event: None,
    registry: Callable[[], Registry] = load_registry,
    at_once: int = 1,
    begun: Callable[[str], None] = lambda title: None,
) -> Iterator[Finished]:
    """Measure each request that is not measured yet, `at_once` at a time.

    The caller must hold the file's lock. `begun` gets the title of each problem,
    `listen` the progress if there is one at a time. Each
    cell is stored as soon as it is final, so that a kill loses only the current cells. Raise
    ShardbenchError if the results cannot be written.
    """
    store.add()  # fails before the measurement if the file cannot be written
    left = [request for request in requests if not request.is_measured]
    start_server_for(request.family for request in left)

    def measure(request: Request) -> Finished:
        begun(request.title)
        new: list[Cell] = []

        def keep(cell: Cell) -> None:
            store.add_cells([cell])
            new.append(cell)

        try:
            comparison = Comparison(request, settings, registry)
            comparison.run(listen if at_once == 1 else lambda event: None, keep)
        except UsageError as error:
            return Finished(request, new, str(error))
        return Finished(request, new)

    return in_lanes(left, measure, at_once) if at_once > 1 else map(measure, left)


def in_lanes(tasks: Sequence[T], run: Callable[[T], R], lanes: int) -> Iterator[R]:
    """Run tasks in as many threads as there are lanes, and yield each result as it comes.

    The threads are daemons, so that the end of the process does not wait for them. An error of a
    task is raised, and no further task begins.
    """
    left = deque(tasks)
    ended: SimpleQueue[R | BaseException] = SimpleQueue()

    def work() -> None:
        while True:
            try:
                task = left.popleft()
            except IndexError:
                return
            try:
                ended.put(run(task))
            except BaseException as error:  # raised again by the thread that reads the queue
                left.clear()
                ended.put(error)

    for _ in range(lanes):
        Thread(target=work, daemon=True).start()
    try:
        for _ in tasks:
            outcome = ended.get()
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome
    finally:
        left.clear()
