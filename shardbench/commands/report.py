"""`shardbench report`: write a report of a results file, or of the changes between two."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from harness.contract.registry import Registry
from harness.measuring.jobs import start_server_for
from harness.measuring.profiling import profile_variants
from harness.model.errors import ShardbenchError, UsageError
from harness.model.settings import Settings
from harness.suites.sweep import registered_requests
from shardbench import options
from shardbench.command import resumable
from shardbench.problem_options import find_problem
from shardbench.progress import stage_display
from shardbench.results_file import measure, measuring_into, tell_damaged

_PROFILED_SECONDS, _PROFILED_AT_ONCE = 1.0, 2


def report(
    results: Annotated[
        Path | None,
        typer.Argument(help="A results file; without one the suite is measured first."),
    ] = None,
    other: Annotated[
        Path | None,
        typer.Argument(help="Another results file: what changed from RESULTS to it."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the report.", show_default="report; comparison of two files"),
    ] = None,
    flames: Annotated[
        bool,
        typer.Option(
            "--flames", help="Profile each step of the published changes too, for flame graphs."
        ),
    ] = False,
    profiles: Annotated[
        Path, typer.Option(help="Folder of profiles, to link flame graphs from.")
    ] = Path("profiles"),
    validations: Annotated[
        Path, typer.Option(help="Folder of the results of `validate`, to show in a chapter.")
    ] = Path("validations"),
    record: Annotated[
        Path, typer.Option(help="Folder of the record, to show next to the results if it is there.")
    ] = Path("record"),
    title: Annotated[str, typer.Option(help="The heading of the page.", show_default=False)] = "",
    fresh: options.Fresh = False,
    large: Annotated[
        bool, typer.Option("--large", help="Measure the large problems of the suite too.")
    ] = False,
    budget: options.Budget = options.SUITE_BUDGET,
    seconds: options.Seconds = options.SUITE_SECONDS,
    seed: options.Seed = 0,
    memory: options.Memory = None,
    _: options.Machine = "",
) -> None:
    """Write an offline page of results, or of changes between two.

    Also writes figures and their data next to the page.
    """
    if results is not None and other is not None:
        if large or fresh or flames:
            raise UsageError("A report of two files takes no --large, --fresh or --flames.")
        from reports.changes import write_comparison

        for file in (results, other):
            tell_damaged(file)
        _tell(write_comparison(results, other, out or Path("comparison"), title))
        return
    from reports.report.page import write_report  # slow to import: pandas, matplotlib

    settings = options.settings_of(budget, seconds, seed, memory)
    is_default = results is None
    if results is None:
        results = Path("results") / ("report-large.jsonl" if large else "report.jsonl")
        with measuring_into(results), resumable(results, fresh):
            requests = registered_requests(options.found_registry().families, large)
            measure(requests, results, settings, fresh)
    elif large:
        raise UsageError(f"--large measures a suite; the report of {results} takes no --large.")
    else:
        tell_damaged(results)
    if flames or is_default:
        options.check_folder(profiles)
        _profile(results, profiles, options.found_registry(), settings, with_ladders=flames)
    _tell(write_report(results, out or Path("report"), profiles, validations, record, title))


def _tell(page: Path) -> None:
    options.messages.print(f"Wrote {page}")
    print(page)


def _profile(
    results: Path, profiles: Path, registry: Registry, settings: Settings, with_ladders: bool
) -> None:
    """Write a page of flame graphs of today's release and ours for each family, unless up to date.

    `with_ladders` adds a page for each step of the published changes. The variants of a problem run
    in turns, and two problems at a time. If one cannot be profiled, this warns and goes on.
    """
    from reports.core.frames import read_results
    from reports.family.data import families
    from reports.family.flame_links import FlamePair, ladder_pairs, main_pair, page_name
    from reports.flames import flame_page

    measured = results.stat().st_mtime
    waiting: dict[tuple[str, str], dict[FlamePair, Path]] = {}
    for family in families(read_results(results)):
        for pair in (*main_pair(family), *(ladder_pairs(family) if with_ladders else ())):
            page = profiles / page_name(family.name, pair)
            if not page.exists() or page.stat().st_mtime < measured:
                waiting.setdefault((family.name, pair.problem), {})[pair] = page

    def profile(family: str, problem: str) -> None:
        pages = waiting[family, problem]
        names = dict.fromkeys(name for pair in pages for name in (pair.before, pair.variant))
        begins(f"profiling {family} on {problem}")
        try:
            found = find_problem(registry, f"{family}@{problem}")
            request = replace(found, variants=tuple(filter(None, names)))
            profiled = profile_variants(request, settings, _PROFILED_SECONDS)
            for pair, page in pages.items():
                both = [profiled[name].profile for name in (pair.variant, pair.before) if name]
                options.write(page, flame_page(both, problem))
        except ShardbenchError as error:
            options.warn(f"No flame graphs of {family}: {error}")

    pool = ThreadPoolExecutor(_PROFILED_AT_ONCE)  # an interrupt must not wait for its threads
    with stage_display() as begins:
        start_server_for(registry.find(family) for family, _ in waiting)
        for done in [pool.submit(profile, *of) for of in waiting]:
            done.result()
