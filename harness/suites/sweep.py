"""Run the problems of a suite into one results file, resuming where it was stopped."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from harness.contract import Family
from harness.contract.registry import Registry, load_registry
from harness.measuring.comparison import Comparison
from harness.measuring.environment import environment
from harness.measuring.jobs import start_server_for
from harness.measuring.monitor import Event
from harness.measuring.request import Request
from harness.model.cell import Cell, Environment, legible
from harness.model.errors import ShardbenchError, UsageError, one_line
from harness.model.ids import ProblemId
from harness.model.settings import Settings
from harness.store.results import append_cells, read_cells
from harness.suites.executors import WORKER_DIED, outcomes
from harness.suites.tasks import code_of, measure
from harness.topologies.lookup import placed_on


@dataclass(frozen=True, slots=True)
class Site:
    """The environment that a sweep measures in; `several` machines may have the same.

    With `by_family` stored cells hold as long as the sources of their family are unchanged.
    """

    environment: Environment
    several: bool = False
    by_family: bool = False

    def has_measured(self, cell: Cell, settings: Settings) -> bool:
        """Whether a stored cell can stand for what would be measured here."""
        here, there = self.environment, cell.environment
        machine = [(where.machine, where.cpu, where.cores) for where in (here, there)]
        codes = [code_of(where) for where in (here, there)]
        if self.by_family:
            codes[0] = codes[0]._replace(code=here.family_code)
            codes[1] = codes[1]._replace(code=there.family_code)
        same = codes[0] == codes[1] and (self.several or machine[0] == machine[1])
        return same and cell.settings == settings


@dataclass(frozen=True, slots=True)
class Workers:
    """The measuring processes: an executor that runs `at_once()` tasks at a time, or this process.

    `machines` are those of the workers by name, where they have one.
    """

    site: Site
    executor: Executor | None = None
    at_once: Callable[[], int] = lambda: 1
    machines: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finished:
    """A request that is over after `seconds`, and the cells that it added to the results.

    `refused` is the reason for having none: the problem cannot be built, or not there.
    """

    request: Request
    cells: list[Cell]
    seconds: float
    refused: str = ""


def registered_requests(families: Iterable[Family[Any, Any]], large: bool = False) -> list[Request]:
    """Return the problems that families study themselves; with `large` their large ones too.

    Raises UsageError where a study names a variant or a topology that is not known.
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
                Request(family, problem.workload, topology, study.variants, against, study.purpose)
            )
    return merged(requests)


def merged(requests: Iterable[Request]) -> list[Request]:
    """Make one request of those of one problem, so that no cell is measured twice.

    Raises UsageError where one is compared with two variants: their cells would have the same ids.
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
        found[key] = replace(first, variants=variants)
    return list(found.values())


def _cells(results: Path) -> Iterable[Cell]:
    """Read the stored cells; damaged lines are left out, `set_damaged_aside` reports them."""
    return read_cells(results, lambda damage: None) if results.exists() else ()


def is_outdated(results: Path, settings: Settings, site: Site | None = None) -> bool:
    """Whether a results file holds cells that other code, settings or machines have measured.

    A report would show them with the new ones as if they were comparable.
    """
    site = site or Site(environment(settings.sampling.seed))
    return any(not site.has_measured(cell, settings) for cell in _cells(results))


def set_aside(results: Path) -> Path | None:
    """Rename a results file after the time of its last change; returns the new path, if any.

    Raises ShardbenchError where it cannot be renamed, and stays as it is.
    """
    if not results.exists():
        return None
    changed = datetime.fromtimestamp(results.stat().st_mtime, UTC)
    kept = results.with_name(f"{results.stem}-{changed:%Y%m%dT%H%M%S%f}{results.suffix}")
    try:
        return results.rename(kept)
    except OSError as error:
        raise ShardbenchError(f"{results} cannot be set aside: {error.strerror}.") from None


def resumed(
    requests: Sequence[Request], results: Path, settings: Settings, site: Site | None = None
) -> list[Request]:
    """Return the requests with what this code has measured of each already.

    Results of other code, versions or settings do not count, nor those of another machine, unless
    the site has several: then a problem counts that any one of them has measured. Raises UsageError
    where the file cannot be read, or a request names no variant of its family.
    """
    site = site or Site(environment(settings.sampling.seed))
    held: dict[tuple[str, str], dict[str | None, dict[str, Cell]]] = {}
    for cell in _cells(results):
        if site.has_measured(cell, settings):
            machines = held.setdefault((cell.family, str(cell.problem)), {})
            machines.setdefault(cell.environment.machine, {})[cell.variant] = cell
    return [
        _resumed(request, held.get((request.family.name, legible(str(request.problem))), {}))
        for request in requests
    ]


def _resumed(request: Request, machines: Mapping[str | None, Mapping[str, Cell]]) -> Request:
    names = request.names()
    usable = [_usable(request, cells) for cells in machines.values()]
    return replace(
        request,
        stored=tuple(cell for cells in usable for cell in cells.values()),
        is_measured=any(names <= cells.keys() for cells in usable),
    )


def _usable(request: Request, cells: Mapping[str, Cell]) -> dict[str, Cell]:
    """Keep the cells of a request's variants that are compared as it wants it.

    Where the variant to compare with has no part in the problem, its cell names the stand-in.
    """
    names, against = request.names(), request.reference.name
    first = cells.get(against)
    if first and first.status == "not applicable":
        against = first.against
    return {
        name: cell
        for name, cell in cells.items()
        if cell.against == against and name in {*names, against}
    }


def sweep(
    requests: Sequence[Request],
    results: Path,
    settings: Settings,
    listen: Callable[[Event], None] = lambda event: None,
    registry: Callable[[], Registry] = load_registry,
    workers: Workers | None = None,
    begun: Callable[[Request], None] = lambda request: None,
) -> Iterator[Finished]:
    """Measure each request that is not measured yet; the caller holds the file.

    Without an executor they are measured here, one by one; `listen` gets their progress, and
    each cell is stored as soon as it is final, so that a kill loses those in flight alone. With
    one, a request is a task of it, and its cells are stored when it is over; where the worker of a
    task dies, it is tried once more, and then its cells are failed ones. Raises ShardbenchError
    where the results cannot be written, or no worker is left.
    """
    append_cells(results, [])  # whether it can be written is better known before measuring
    left = [request for request in requests if not request.is_measured]
    if workers is None or workers.executor is None:
        return _here(left, results, settings, listen, registry, begun)
    return _over(workers.executor, left, results, settings, workers, registry, begun)


def _here(
    requests: Sequence[Request],
    results: Path,
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
            append_cells(results, [cell])
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
    results: Path,
    settings: Settings,
    workers: Workers,
    registry: Callable[[], Registry],
    begun: Callable[[Request], None],
) -> Iterator[Finished]:
    site = workers.site
    call = partial(measure, code=code_of(site.environment))
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
            for cell in cells:  # which machine it was is not known
                cell.environment = msgspec.structs.replace(site.environment, machine=None)
        else:
            cells = outcome
        append_cells(results, cells)
        yield Finished(request, cells, time.monotonic() - started[number], refused)
