"""`shardbench sweep`: measure a suite of problems into one results file."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from shlex import quote
from typing import get_args

import click

from harness.contract.registry import Registry
from harness.measuring.request import Request
from harness.model.cell import Status
from harness.model.errors import UsageError, printable, unknown
from harness.model.settings import Settings
from harness.store.cells import CellStore
from harness.suites.cluster import Cluster, connected
from harness.suites.declared import read_suite, registered_requests
from harness.suites.sweep import Finished, resumed, short_reason, tasks_of
from reports.core.formatting import plural
from shardbench import completion, options
from shardbench.command import command
from shardbench.results_file import measure, measuring_into, tell_damaged

_REGISTERED = {"default": "report", "large": "report-large"}


@command(
    "shardbench sweep dimspec,reshard --dry-run",
    "shardbench sweep default --results results/today.jsonl",
)
@click.argument(
    "suite",
    default="default",
    help="A suite (a .toml file), 'default' or 'large' for the problems that the families "
    "study themselves, or names of families with commas between.",
    shell_complete=completion.suites,
)
@click.option(
    "--results",
    type=options.PATH,
    help="Append to this results file.",
    show_default="results/SUITE.jsonl",
)
@click.option(
    "--executor",
    type=click.Choice(["processes", "dask"]),
    default="processes",
    help="Who measures: processes here, or the workers of dask.",
)
@click.option(
    "--scheduler", default="", help="Address of the Dask scheduler, e.g. tcp://10.0.0.1:8786."
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    help="How many problems to measure at once here; more than one disturb each other.",
)
@options.measuring(budget_s=options.SUITE_BUDGET, seconds_s=options.SUITE_SECONDS)
@options.machine
@options.fresh
@click.option("--dry-run", is_flag=True, help="List what would run, and measure nothing.")
def sweep_command(
    suite: str,
    results: Path | None,
    executor: str,
    scheduler: str,
    workers: int,
    settings: Settings,
    fresh: bool,
    dry_run: bool,
) -> None:
    """Measure a suite of problems, or resume a stopped run."""
    if (executor == "dask") != bool(scheduler):
        raise UsageError("--executor dask needs --scheduler, and nothing else takes it.")
    if scheduler and workers > 1:
        raise UsageError("--workers is for processes here; a cluster has workers of its own.")
    name, requests = _suite(suite, options.found_registry())
    path = results or Path("results") / f"{name}.jsonl"
    store = CellStore(path)
    if dry_run:
        _list(requests, store, settings, fresh)
        return
    dask = _cluster(scheduler) if scheduler else nullcontext()
    if workers > 1:
        options.warn(
            f"{workers} problems are measured at once on this machine, and disturb each other: "
            "their times are not as good as those of one at a time."
        )
    with dask as cluster, measuring_into(store, fresh):
        requests, finished = measure(requests, store, settings, cluster=cluster, at_once=workers)
    _summarise(requests, finished, path)


@contextmanager
def _cluster(scheduler: str) -> Iterator[Cluster]:
    with connected(scheduler) as cluster:
        for machine, count in Counter(cluster.machines.values()).items():
            if count > 1:
                options.warn(
                    f"{count} workers share machine {machine}, and disturb each other: one "
                    "worker for each machine measures best."
                )
        yield cluster


def _suite(name: str, registry: Registry) -> tuple[str, Sequence[Request]]:
    if name.endswith(".toml"):
        return read_suite(Path(name), registry)
    if name in _REGISTERED:
        return _REGISTERED[name], registered_requests(registry.families, large=name == "large")
    names = options.names_in(name)
    if not names:
        raise UsageError("Name a suite: a .toml file, default, large, or families.")
    known = {family.name for family in registry.families}
    if unheard := [text for text in names if text not in {*known, *registry.failures}]:
        raise unknown("suite or family", unheard[0], [*known, *_REGISTERED])
    families = [registry.find(text) for text in dict.fromkeys(names)]
    called = "-".join(re.sub(r"[^A-Za-z0-9_.-]", "-", family.name) for family in families)
    return called, registered_requests(families)


def _list(requests: Sequence[Request], store: CellStore, settings: Settings, fresh: bool) -> None:
    if not fresh:
        tell_damaged(store.damaged)
        requests = resumed(tasks_of(requests, settings), store)
    for request in requests:
        names = ", ".join(name for name in request.family.variants if name in request.names())
        state = "measured" if request.is_measured else "to measure"
        print(f"{state:10}  {request.title}: {names}")
    left = sum(not request.is_measured for request in requests)
    print(f"{plural(len(requests), 'problem')}, {left} to measure, into {store.path}.")


def _summarise(requests: Sequence[Request], finished: Sequence[Finished], path: Path) -> None:
    """Print cells by status, failed cells and refused problems; exit with 1 if no cell is ok."""
    new = [cell for problem in finished for cell in problem.cells]
    stored = [cell for request in requests for cell in request.stored]
    ended = Counter(cell.status for cell in stored + new)
    counts = ", ".join(f"{ended[status]} {status}" for status in get_args(Status) if ended[status])
    print(f"{plural(ended.total(), 'cell')}: {counts}.")
    for cell in new:
        if cell.status == "failed":
            print(f"Failed: {printable(str(cell.id))}: {short_reason(cell)}")
    for problem in finished:
        if problem.refused:
            print(f"Not measured: {problem.request.title}: {problem.refused}")
    print(f"The results are in {path}; a report of them: shardbench report {quote(str(path))}")
    if not ended["ok"]:
        raise click.exceptions.Exit(1)
