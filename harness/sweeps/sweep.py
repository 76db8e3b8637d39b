"""Run the problems of a suite into one results file, resuming where it was stopped."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.errors import ShardbenchError, UsageError, one_line
from harness.machine import environment
from harness.measuring.comparison import Comparison, Settings
from harness.measuring.jobs import start_server_for
from harness.measuring.monitor import Event
from harness.naming import ProblemId, WorkloadSpec
from harness.placing import placed_on
from harness.registry import Family, Registry, load_registry
from harness.storage.results import Cell, Stored, append_cells, read_records
from harness.sweeps.executors import WORKER_DIED, outcomes
from harness.sweeps.tasks import Task, measure
from harness.topologies import Topology

# What must be as it was for a stored result to stand for a new one.
_SAME_CODE = ("code", "packages", "python")
_SAME_MACHINE = ("machine", "cpu", "cores")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sweep measures: the environment there, and whether it is one of several machines."""

    environment: Mapping[str, Any]
    several: bool = False

    def measured(self, record: Mapping[str, Any], settings: Settings) -> bool:
        """Whether a stored line can stand for what would be measured here."""
        keys = _SAME_CODE if self.several else (*_SAME_CODE, *_SAME_MACHINE)
        there = record.get("environment") or {}
        same = all(there.get(key) == self.environment.get(key) for key in keys)
        return same and record.get("settings") == asdict(settings)


@dataclass(frozen=True, slots=True)
class Workers:
    """Who measures: an executor, of which `at_once()` tasks can run at a time, or this process.

    `machines` are those of the workers by name, where they have one.
    """

    place: Place
    executor: Executor | None = None
    at_once: Callable[[], int] = lambda: 1
    machines: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One problem of a suite, its variants, and the one that they are compared with.

    `stored` are its cells that the results hold already; `measured` says that these are all.
    """

    family: Family[Any, Any]
    workload: WorkloadSpec
    topology: Topology
    variants: tuple[str, ...]
    against: str
    purpose: str = ""
    stored: tuple[Stored, ...] = ()
    measured: bool = False

    @property
    def problem(self) -> ProblemId:
        """The problem as it is asked for; cells may call its workload otherwise."""
        return ProblemId(self.workload, self.topology.name, self.topology.gpus)

    def names(self) -> set[str]:
        """Return all variants that run; raises UsageError where one is not known."""
        return {self.family.find(name).name for name in (self.against, *self.variants)}


@dataclass(frozen=True, slots=True)
class Finished:
    """A step that is over after `seconds`, and the cells that it added to the results.

    `refused` says why there are none: the problem cannot be built, or not there.
    """

    step: Step
    cells: list[Cell]
    seconds: float
    refused: str = ""


def registered_steps(families: Iterable[Family[Any, Any]], large: bool = False) -> list[Step]:
    """Return the problems that families study themselves; with `large` their large ones too.

    Raises:
        UsageError: a study names a variant or a topology that is not known.
    """
    steps = []
    for family in families:
        for study in family.studies:
            if study.large and not large:
                continue
            problem = ProblemId.parse(study.problem)
            step = Step(
                family,
                problem.workload,
                placed_on(family, problem.workload, problem.topology, problem.gpus),
                study.variants,
                study.against or family.reference.name,
                study.purpose,
            )
            steps.append(step)
    return merged(steps)


def merged(steps: Iterable[Step]) -> list[Step]:
    """Make one step of those of one problem, so that no cell is measured twice.

    Raises:
        UsageError: one problem is to be compared with two variants, whose cells no id would tell
            apart.
    """
    found: dict[tuple[str, str], Step] = {}
    for step in steps:
        key = (step.family.name, str(_stored_problem(step)))
        first = found.setdefault(key, step)
        if first.against != step.against:
            raise UsageError(
                f"'{step.problem}' is to be compared with '{first.against}' and with "
                f"'{step.against}'; a problem can be compared with one variant in a suite."
            )
        variants = tuple(dict.fromkeys((*first.variants, *step.variants)))
        found[key] = replace(first, variants=variants)
    return list(found.values())


def _stored_problem(step: Step) -> ProblemId:
    return replace(step.problem, workload=step.family.label(step.workload))


def _records(results: Path) -> Iterable[dict[str, Any]]:
    """Read what there is; damaged lines count for nothing, `set_damaged_aside` tells of them."""
    return read_records(results, lambda damage: None) if results.exists() else ()


def is_outdated(results: Path, settings: Settings, place: Place | None = None) -> bool:
    """Whether a results file holds cells that other code, settings or machines have measured.

    A report would show them beside the new ones as if they were comparable.
    """
    place = place or Place(environment(settings.sampling.seed))
    return any(not place.measured(record, settings) for record in _records(results))


def set_aside(results: Path) -> Path | None:
    """Rename a results file after the time of its last change; returns the new path, if any.

    Raises:
        ShardbenchError: it cannot be renamed, and stays as it is.
    """
    if not results.exists():
        return None
    changed = datetime.fromtimestamp(results.stat().st_mtime, UTC)
    kept = results.with_name(f"{results.stem}-{changed:%Y%m%dT%H%M%S%f}{results.suffix}")
    try:
        return results.rename(kept)
    except OSError as error:
        raise ShardbenchError(f"{results} cannot be set aside: {error.strerror}.") from None


def plan_sweep(
    families: Sequence[Family[Any, Any]], results: Path, settings: Settings, large: bool = False
) -> list[Step]:
    """List the problems that families study, and which of them are measured already: see `plan`."""
    return plan(registered_steps(families, large), results, settings)


def plan(
    steps: Iterable[Step], results: Path, settings: Settings, place: Place | None = None
) -> list[Step]:
    """Find out what of each step this code has measured already.

    Results of other code, versions or settings do not count, nor those of another machine, unless
    the place has several: then a problem counts that any one of them has measured.

    Raises:
        UsageError: the results file cannot be read, or a step names no variant of its family.
    """
    place = place or Place(environment(settings.sampling.seed))
    held: dict[tuple[str, str], dict[str | None, dict[str, Stored]]] = {}
    for record in _records(results):
        if place.measured(record, settings):
            each = Stored.of(record)
            problem = record["cell"].partition("@")[2]
            machines = held.setdefault((record["family"], problem), {})
            machines.setdefault(each.machine, {})[each.variant] = each
    return [
        _planned(step, held.get((step.family.name, str(_stored_problem(step))), {}))
        for step in steps
    ]


def _planned(step: Step, machines: Mapping[str | None, Mapping[str, Stored]]) -> Step:
    names = step.names()
    usable = [_usable(step, cells) for cells in machines.values()]
    measured = any(names <= cells.keys() for cells in usable)
    stored = tuple(each for cells in usable for each in cells.values())
    return replace(step, stored=stored, measured=measured)


def _usable(step: Step, cells: Mapping[str, Stored]) -> dict[str, Stored]:
    """Keep the cells of a step's variants that are compared as the step wants it.

    Where the variant to compare with has no part in the problem, its cell names who stood in.
    """
    names = step.names()
    first = cells.get(step.against)
    against = first.against if first and first.status == "not applicable" else step.against
    return {
        name: cell
        for name, cell in cells.items()
        if cell.against == against and name in {*names, against}
    }


def sweep(
    steps: Sequence[Step],
    results: Path,
    settings: Settings,
    listen: Callable[[Event], None] = lambda event: None,
    registry: Callable[[], Registry] = load_registry,
    workers: Workers | None = None,
    begun: Callable[[Step], None] = lambda step: None,
) -> Iterator[Finished]:
    """Measure each step that is not measured yet; who calls holds the file.

    Without an executor steps are measured here, one by one; `listen` is told how far each is, and
    each cell is stored as soon as it is final, so that a kill loses those in flight alone. With
    one, a step is a task of it, and its cells are stored when it is over; where the worker of a
    task dies, it is tried once more, and then its cells are failed ones.

    Raises:
        ShardbenchError: the results cannot be written, or no worker is left.
    """
    append_cells(results, [])  # whether it can be written is better known before measuring
    left = [step for step in steps if not step.measured]
    if workers is None or workers.executor is None:
        return _here(left, results, settings, listen, registry, begun)
    return _over(workers.executor, left, results, settings, workers, registry, begun)


def _here(
    steps: Sequence[Step],
    results: Path,
    settings: Settings,
    listen: Callable[[Event], None],
    registry: Callable[[], Registry],
    begun: Callable[[Step], None],
) -> Iterator[Finished]:
    start_server_for(step.family for step in steps)
    for step in steps:
        begun(step)
        started = time.monotonic()
        kept: list[Cell] = []

        def keep(cell: Cell, kept: list[Cell] = kept) -> None:
            append_cells(results, [cell])
            kept.append(cell)

        refused = ""
        try:
            _comparison(step, settings, registry).run(listen, keep)
        except UsageError as error:
            refused = str(error)
        yield Finished(step, kept, time.monotonic() - started, refused)


def _comparison(step: Step, settings: Settings, registry: Callable[[], Registry]) -> Comparison:
    return Comparison(
        step.family,
        step.workload,
        step.topology,
        step.variants,
        settings,
        registry,
        step.purpose,
        step.against,
        step.stored,
    )


def _over(
    executor: Executor,
    steps: Sequence[Step],
    results: Path,
    settings: Settings,
    workers: Workers,
    registry: Callable[[], Registry],
    begun: Callable[[Step], None],
) -> Iterator[Finished]:
    place = workers.place
    tasks = [_task(step, settings, place, registry) for step in steps]
    started: dict[int, float] = {}

    def task_begins(number: int) -> None:
        started.setdefault(number, time.monotonic())
        begun(steps[number])

    for number, outcome in outcomes(executor, measure, tasks, workers.at_once, task_begins):
        step, cells, refused = steps[number], [], ""
        if isinstance(outcome, ShardbenchError):
            refused = str(outcome)
        elif isinstance(outcome, Exception):
            cells = _comparison(step, settings, registry).failed(_why(outcome))
            for cell in cells:  # which machine it was is not known
                cell.environment = {**place.environment, "machine": None}
        else:
            cells = [Cell(**record) for record in outcome]
        append_cells(results, cells)
        yield Finished(step, cells, time.monotonic() - started[number], refused)


def _why(error: Exception) -> str:
    if isinstance(error, WORKER_DIED):
        return f"Its worker process died, twice. {one_line(error)}"
    return f"Its worker failed. {one_line(error)}"


def _task(step: Step, settings: Settings, place: Place, registry: Callable[[], Registry]) -> Task:
    return Task(
        registry,
        step.family.name,
        str(step.workload),
        step.topology,
        step.variants,
        step.against,
        step.purpose,
        settings,
        step.stored,
        {key: place.environment.get(key) for key in _SAME_CODE},
    )
