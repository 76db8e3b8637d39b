"""Measure the problems of a suite into a results file, and resume a stopped run."""

import time
from collections import Counter
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
from harness.measuring.environment import ELSEWHERE, environment, other_code
from harness.measuring.jobs import Event, start_server_for
from harness.measuring.request import Request
from harness.model.cell import Cell, Environment, legible
from harness.model.errors import ShardbenchError, UsageError, one_line
from harness.model.ids import ProblemId
from harness.model.settings import Settings
from harness.model.versions import PACKAGES, installed_versions
from harness.store.results import append_cells, read_cells
from harness.suites.executors import WORKER_DIED, outcomes
from harness.suites.tasks import measure
from harness.topologies.lookup import placed_on


@dataclass(frozen=True, slots=True)
class Site:
    """The environment of a sweep; with `several`, it has several machines of any hardware.

    With `by_family`, stored cells are valid until the source files of their family change.
    `earlier` has the codes of earlier versions whose cells are still valid.
    """

    environment: Environment
    several: bool = False
    by_family: bool = False
    earlier: Sequence[str] = ()

    def difference(self, cell: Cell, settings: Settings) -> str:
        """Return why a stored cell does not count here, such as "other code"; empty if it does.

        A cell has times, which only count on the same machine.
        """
        here, there = self.environment, cell.environment
        hardware = [(where.machine, where.cpu, where.cores) for where in (here, there)]
        if not self.several and hardware[0] != hardware[1]:
            return ELSEWHERE
        if not there.packages.keys() <= set(PACKAGES):  # of a family of another distribution
            here = msgspec.structs.replace(here, packages=installed_versions(there.packages))
        if self.by_family:
            here = msgspec.structs.replace(here, code=here.family_code)
            there = msgspec.structs.replace(there, code=there.family_code)
        if why := other_code(there, here, self.earlier):
            return why
        changed = [
            name
            for name in Settings.__struct_fields__
            if getattr(settings, name) != getattr(cell.settings, name, None)
        ]
        return f"other settings ({', '.join(changed)})" if changed else ""


@dataclass(frozen=True, slots=True)
class Workers:
    """The processes that measure: an executor for `at_once()` tasks at a time, or this process.

    `machines` maps a worker's name to the hash of its machine, if workers have names.
    """

    site: Site
    executor: Executor | None = None
    at_once: Callable[[], int] = lambda: 1
    machines: Mapping[str, str] = field(default_factory=dict)


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


def _cells(results: Path) -> Iterable[Cell]:
    """Read the stored cells without damaged lines, which `set_damaged_aside` reports."""
    return read_cells(results, lambda damage: None) if results.exists() else ()


def told_apart(
    results: Path, settings: Settings, site: Site | None = None
) -> tuple[list[Cell], Counter[str]]:
    """Return the stored cells that count here, and the number of others by what they differ in.

    A report would present the others as comparable with new ones.
    """
    site = site or Site(environment(settings.sampling.seed))
    usable: list[Cell] = []
    outdated: Counter[str] = Counter()
    for cell in _cells(results):
        if why := site.difference(cell, settings):
            outdated[why] += 1
        else:
            usable.append(cell)
    return usable, outdated


def set_aside(results: Path) -> Path | None:
    """Rename a results file by adding the time of its last change; return the new path.

    Return None if there is no file. Raise ShardbenchError if it cannot be renamed.
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
    """Return the requests with their stored cells, so that only the others are measured.

    Ignore cells of other code, versions or settings, and of other machines unless the site has
    several. With several machines, a problem is complete if one machine has measured all of its
    cells. Raise UsageError if the file cannot be read or a request has an unknown variant.
    """
    stored: dict[tuple[str, str], dict[str | None, dict[str, Cell]]] = {}
    for cell in told_apart(results, settings, site)[0]:
        machines = stored.setdefault((cell.family, str(cell.problem)), {})
        machines.setdefault(cell.environment.machine, {})[cell.variant] = cell
    resumed = []
    for request in requests:
        names = request.names()
        machines = stored.get((request.family.name, legible(str(request.problem))), {})
        usable = [_usable(request, cells) for cells in machines.values()]
        cells = tuple(cell for cells in usable for cell in cells.values())
        is_measured = any(names <= cells.keys() for cells in usable)
        resumed.append(replace(request, stored=cells, is_measured=is_measured))
    return resumed


def _usable(request: Request, cells: Mapping[str, Cell]) -> dict[str, Cell]:
    """Return the cells of a request's variants that are compared with the requested reference.

    If the reference does not support the problem, its cell names the variant that replaces it.
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
    """Measure each request that is not measured yet. The caller must hold the file's lock.

    Without an executor, measure the requests one by one in this process. `listen` gets the
    progress, and each cell is stored as soon as it is final, so that a kill loses only the current
    cells. With an executor, each request is a task, and its cells are stored when the task ends. If
    the worker of a task dies twice, the cells are stored as failed. Raise ShardbenchError if the
    results cannot be written or no worker is left.
    """
    append_cells(results, [])  # fails before the measurement if the file cannot be written
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
    call = partial(measure, expected=site.environment)
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
                cell.environment = msgspec.structs.replace(site.environment, machine=None)
        else:
            cells = outcome
        append_cells(results, cells)
        yield Finished(request, cells, time.monotonic() - started[number], refused)
