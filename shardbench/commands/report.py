"""`shardbench report`: write a report of a results file, or of the changes between two."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import click

from harness.contract.registry import Registry
from harness.measuring.jobs import start_server_for
from harness.measuring.profiling import profile_variants
from harness.model.errors import ShardbenchError, UsageError
from harness.model.settings import Settings
from harness.suites.sweep import registered_requests
from shardbench import options
from shardbench.command import command, resumable
from shardbench.problem_options import find_problem
from shardbench.progress import stage_display
from shardbench.results_file import measure, measuring_into, tell_damaged

_PROFILED_SECONDS, _PROFILED_AT_ONCE = 1.0, 2


@command("shardbench report", "shardbench report before.jsonl after.jsonl")
@click.argument(
    "results",
    type=options.PATH,
    required=False,
    help="A results file; without one the suite is measured first.",
)
@click.argument(
    "other",
    type=options.PATH,
    required=False,
    help="Another results file: what changed from RESULTS to it.",
)
@click.option(
    "--out",
    type=options.PATH,
    help="Folder for the report.",
    show_default="report; comparison of two files",
)
@click.option(
    "--flames",
    is_flag=True,
    help="Profile each step of the published changes too, for flame graphs.",
)
@click.option(
    "--profiles",
    type=options.PATH,
    default=Path("profiles"),
    help="Folder of profiles, to link flame graphs from.",
)
@click.option(
    "--validations",
    type=options.PATH,
    default=Path("validations"),
    help="Folder of the results of `validate`, to show in a chapter.",
)
@click.option(
    "--record",
    type=options.PATH,
    default=Path("record"),
    help="Folder of the record, to show next to the results if it is there.",
)
@click.option("--title", default="", help="The heading of the page.")
@options.fresh
@click.option("--large", is_flag=True, help="Measure the large problems of the suite too.")
@options.budget(options.SUITE_BUDGET)
@options.seconds(options.SUITE_SECONDS)
@options.seed
@options.memory
@options.machine
def report(
    results: Path | None,
    other: Path | None,
    out: Path | None,
    flames: bool,
    profiles: Path,
    validations: Path,
    record: Path,
    title: str,
    fresh: bool,
    large: bool,
    budget: float,
    seconds: float,
    seed: int,
    memory: float | None,
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
