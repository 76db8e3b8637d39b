"""Measure the problems of a suite into a results file, and resume a stopped run."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from harness.contract import Family
from harness.contract.registry import Registry, load_registry
from harness.measuring.comparison import Comparison
from harness.measuring.jobs import Event, start_server_for
from harness.measuring.request import Request
from harness.model.cell import Cell, Environment
from harness.model.errors import ShardbenchError, UsageError, one_line
from harness.model.files import legible
from harness.model.ids import ProblemId
from harness.model.settings import Settings
from harness.store.cells import CellStore
from harness.store.keys import Task, key_of, missing
from harness.suites.executors import WORKER_DIED, outcomes
from harness.suites.tasks import measure
from harness.topologies.lookup import placed_on


@dataclass(frozen=True, slots=True)
class Workers:
    """The processes that measure: an executor for `at_once()` tasks at a time, or this process.

    `environment` is that of a worker; with `several`, they have several machines of any hardware.
    `machines` maps a worker's name to the hash of its machine, if workers have names.
    """

    environment: Environment
    executor: Executor | None = None
    at_once: Callable[[], int] = lambda: 1
    machines: Mapping[str, str] = field(default_factory=dict)
    several: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished request, its duration in seconds, and the cells that it added to the results.

    `refused` is the reason if there are none: the problem could not be built or measured.
    """

    request: Request
    cells: list[Cell]
    seconds: float
    refused: str = ""


def registered_requests(families: Iterable[Family[Any, Any]], large: bool = False) -> list[Request]:
    """Return requests for the studies that families register; with `large` the large ones too.

    Raise UsageError if a study has an unknown variant or topology.
    """
    requests = []
    for family in families:
        for study in family.studies:
            if study.large and not large:
                continue
            problem = ProblemId.parse(study.problem)
            topology = placed_on(family, problem.workload, problem.topology, problem.gpus)
            against = study.against or family.reference.name
            requests.append(
                Request(
                    family,
                    problem.workload,
                    topology,
                    (*study.variants, *study.counted),
                    against,
                    study.purpose,
                    study.counted,
                )
            )
    return merged(requests)


def merged(requests: Iterable[Request]) -> list[Request]:
    """Merge the requests for the same problem, so that no cell is measured twice.

    Raise UsageError if they compare with different variants, since their cells would have equal
    ids.
    """
    found: dict[tuple[str, ProblemId], Request] = {}
    for request in requests:
        key = (request.family.name, request.problem)
        first = found.setdefault(key, request)
        if first.against != request.against:
            raise UsageError(
                f"'{request.given}' is to be compared with '{first.against}' and with "
                f"'{request.against}'; a problem can be compared with one variant in a suite."
            )
        variants = tuple(dict.fromkeys((*first.variants, *request.variants)))
        timed = {name for r in (first, request) for name in r.variants if name not in r.counted}
        counted = tuple(name for name in variants if name not in timed)
        found[key] = replace(first, variants=variants, counted=counted)
    return list(found.values())


def tasks_of(
    requests: Sequence[Request], settings: Settings, several: bool = False, stale: bool = False
) -> list[Task[Request]]:
    """Return the tasks of a suite; raises UsageError for an unknown variant or workload.

    With `several`, cells of any machine count; with `stale`, those of other code count if the
    sources of their family are the same.
    """
    tasks = []
    for request in requests:
        key = request.key(settings)
        key = msgspec.structs.replace(
            key, machine="" if several else key.machine, code="" if stale else key.code
        )
        ids = (legible(str(request.cell_id(name))) for name in request.names())
        tasks.append(Task(request, frozenset(ids), key))
    return tasks


def resumed(tasks: Iterable[Task[Request]], store: CellStore) -> list[Request]:
    """Return the requests with their stored cells, so that only the others are measured."""
    return [
        replace(found.task.what, stored=found.values, is_measured=found.is_complete)
        for found in missing(tasks, store.entries)
    ]


def sweep(
    requests: Sequence[Request],
    store: CellStore,
    settings: Settings,
    listen: Callable[[Event], None] = lambda event: None,
    registry: Callable[[], Registry] = load_registry,
    workers: Workers | None = None,
    begun: Callable[[Request], None] = lambda request: None,
) -> Iterator[Finished]:
    """Measure each request that is not measured yet. The caller must hold the file's lock.

    Without an executor, measure the requests one by one in this process. `listen` gets the
    progress, and each cell is stored as soon as it is final, so that a kill loses only the current
    cells. With an executor, each request is a task, and its cells are stored when the task ends. If
    the worker of a task dies twice, the cells are stored as failed. Raise ShardbenchError if the
    results cannot be written or no worker is left.
    """
    store.add()  # fails before the measurement if the file cannot be written
    left = [request for request in requests if not request.is_measured]
    if workers is None or workers.executor is None:
        return _here(left, store, settings, listen, registry, begun)
    return _over(workers.executor, left, store, settings, workers, registry, begun)


def _here(
    requests: Sequence[Request],
    store: CellStore,
    settings: Settings,
    listen: Callable[[Event], None],
    registry: Callable[[], Registry],
    begun: Callable[[Request], None],
) -> Iterator[Finished]:
    start_server_for(request.family for request in requests)
    for request in requests:
        begun(request)
        started = time.monotonic()
        kept: list[Cell] = []

        def keep(cell: Cell, kept: list[Cell] = kept) -> None:
            store.add_cells([cell])
            kept.append(cell)

        refused = ""
        try:
            Comparison(request, settings, registry).run(listen, keep)
        except UsageError as error:
            refused = str(error)
        yield Finished(request, kept, time.monotonic() - started, refused)


def _over(
    executor: Executor,
    requests: Sequence[Request],
    store: CellStore,
    settings: Settings,
    workers: Workers,
    registry: Callable[[], Registry],
    begun: Callable[[Request], None],
) -> Iterator[Finished]:
    call = partial(measure, expected=workers.environment)
    jobs = [request.job(settings, registry) for request in requests]
    started: dict[int, float] = {}

    def job_begins(number: int) -> None:
        started.setdefault(number, time.monotonic())
        begun(requests[number])

    for number, outcome in outcomes(executor, call, jobs, workers.at_once, job_begins):
        request, cells, refused = requests[number], [], ""
        if isinstance(outcome, ShardbenchError):
            refused = str(outcome)
        elif isinstance(outcome, Exception):
            how = "Its worker failed."
            if isinstance(outcome, WORKER_DIED):
                how = "Its worker process died, twice."
            cells = Comparison(request, settings, registry).failed(f"{how} {one_line(outcome)}")
            for cell in cells:  # the machine of a failed worker is unknown
                cell.environment = msgspec.structs.replace(workers.environment, machine=None)
                cell.key = str(key_of(cell.environment, settings, request.reference.name))
        else:
            cells = outcome
        store.add_cells(cells)
        yield Finished(request, cells, time.monotonic() - started[number], refused)
