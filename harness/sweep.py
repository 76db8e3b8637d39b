"""Run the suite of every family into one results file, resuming where it was stopped."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.comparison import Comparison, Settings
from harness.errors import ShardbenchError
from harness.following import Event
from harness.machine import environment
from harness.naming import CellId, ProblemId
from harness.registry import Family, Registry, Study, load_registry
from harness.results import Cell, append_cells, read_records
from harness.topologies import find_topology
from harness.worker import start_server

# What must be as it was for a stored result to stand for a new one.
_SAME = ("code", "packages", "python", "cpu", "cores")


@dataclass(frozen=True, slots=True)
class Step:
    """One problem of the suite; `measured` says that its cells are in the results already."""

    family: Family[Any, Any]
    study: Study
    problem: ProblemId
    measured: bool


def _records(results: Path) -> Iterable[dict[str, Any]]:
    return read_records(results) if results.exists() else ()


def _counts(record: dict[str, Any], settings: Settings, now: dict[str, Any]) -> bool:
    same_machine_and_code = all(record["environment"].get(key) == now[key] for key in _SAME)
    return same_machine_and_code and record["settings"] == asdict(settings)


def is_outdated(results: Path, settings: Settings) -> bool:
    """Whether a results file holds cells that other code, settings or machines have measured.

    A report would show them beside the new ones as if they were comparable.
    """
    now = environment(settings.sampling.seed)
    return any(not _counts(record, settings, now) for record in _records(results))


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
    """List the problems of the suite, and which of them this code has measured already.

    Results of other code, versions, settings or another machine do not count. With `large` the
    large studies are listed too.

    Raises:
        UsageError: the results file cannot be read, or a study names no variant of its family.
    """
    now = environment(settings.sampling.seed)
    known = {
        (each["cell"], each["against"])
        for each in _records(results)
        if _counts(each, settings, now)
    }
    steps = []
    for family in families:
        for study in family.studies:
            if study.large and not large:
                continue
            problem = ProblemId.parse(study.problem)
            stored = replace(problem, workload=family.label(problem.workload))
            against = study.against or family.reference.name
            names = {family.find(name).name for name in (against, *study.variants)}
            cells = {(str(CellId(family.name, name, stored)), against) for name in names}
            steps.append(Step(family, study, problem, cells <= known))
    return steps


def sweep(
    steps: Sequence[Step],
    results: Path,
    settings: Settings,
    listen: Callable[[Event], None] = lambda event: None,
    registry: Callable[[], Registry] = load_registry,
) -> Iterator[tuple[Step, list[Cell]]]:
    """Measure each step that is not yet, storing its cells before the next one begins."""
    append_cells(results, [])  # whether it can be written is better known before measuring
    start_server(tuple(module for step in steps for module in step.family.preload))
    for step in steps:
        if step.measured:
            continue
        cells = Comparison(
            step.family,
            step.problem.workload,
            find_topology(step.problem.topology, step.problem.gpus),
            step.study.variants,
            settings,
            registry,
            step.study.purpose,
            step.study.against,
        ).run(listen)
        append_cells(results, cells)
        yield step, cells
