"""`shardbench report`: write a report of a results file, or of the changes between two."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from harness.measuring.profile.profiler import profile_variants
from harness.measuring.request import Request
from harness.measuring.time_limit import TimeIsUp, time_limit
from harness.model.errors import ShardbenchError, UsageError
from harness.model.ids import ProblemId
from harness.model.settings import Settings
from harness.model.statement import TIMES_FASTER, Pair
from harness.store.cells import CellStore, stored_cells
from harness.suites.declared import merged, registered_requests
from shardbench import options
from shardbench.command import command
from shardbench.problems import find_problem
from shardbench.progress import progress_display
from shardbench.results_file import measure, measuring_into, tell_damaged

_MINUTES, _MINUTES_WITH_LARGE = 3.0, 60.0
_PROFILED_SECONDS = 1.0
# The page is written again when measuring has taken this many times as long as writing it.
_WRITING_PAUSE = 4.0


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
    "--minutes",
    type=options.POSITIVE,
    show_default=f"{_MINUTES:g}; {_MINUTES_WITH_LARGE:g} with --large",
    help="Minutes to measure for, the headlines first; what does not fit is shown from the record.",
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
    default="profiles",
    help="Folder of profiles, to link flame graphs from.",
)
@click.option(
    "--validations",
    type=options.PATH,
    default="validations",
    help="Folder of the results of `validate`, to show in a chapter.",
)
@click.option(
    "--record",
    type=options.PATH,
    default="record",
    help="Folder of the record, to show next to the results if it is there.",
)
@click.option("--title", default="", help="The heading of the page.")
@options.fresh
@click.option("--large", is_flag=True, help="Measure the large problems of the suite too.")
@options.measuring(budget_s=options.SUITE_BUDGET, seconds_s=options.SUITE_SECONDS)
@options.machine
def report(
    results: Path | None,
    other: Path | None,
    minutes: float | None,
    out: Path | None,
    flames: bool,
    profiles: Path,
    validations: Path,
    record: Path,
    title: str,
    fresh: bool,
    large: bool,
    settings: Settings,
) -> None:
    """Write an offline page of results, or of changes between two.

    Also writes figures and their data next to the page.
    """
    if results is not None and (large or fresh or minutes):
        raise UsageError(
            "--large, --fresh and --minutes measure a suite; RESULTS are not measured."
        )
    if results is not None and other is not None:
        if flames:
            raise UsageError("A report of two files takes no --flames.")
        from reports.changes import write_comparison

        for file in (results, other):
            tell_damaged(stored_cells(file).damaged)
        _tell(write_comparison(results, other, out or Path("comparison"), title))
        return
    from reports.report.page import Written, write_report  # slow to import: pandas, matplotlib

    is_suite = results is None

    def write(cells: Path) -> Written:
        folder = out or Path("report")
        return write_report(cells, folder, profiles, validations, record, title, suite=is_suite)

    if results is not None:
        tell_damaged(stored_cells(results).damaged)
        if flames:
            _profile(results, profiles, settings, with_ladders=True)
        _tell(write(results).page)
        return
    results = Path("results") / ("report-large.jsonl" if large else "report.jsonl")
    minutes = minutes or (_MINUTES_WITH_LARGE if large else _MINUTES)
    requests = registered_requests(options.found_registry().families, large)
    store, told = CellStore(results), set[str]()

    def tell() -> Path:
        """Write the page, and print the lines of systems that are new."""
        page, lines = write(results)
        for line in lines:
            if line not in told:
                told.add(line)
                options.messages.print(line)
        return page

    with measuring_into(store, fresh):
        page = tell()
        options.messages.print(
            f"{page} has these figures. It grows while this measures for at most {minutes:g} min, "
            "the headlines first."
        )
        grow = growing(tell)
        with suppress(TimeIsUp), time_limit(60 * minutes):
            measure(headlines(requests), store, settings, then=grow)
            _profile(results, profiles, settings, with_ladders=flames)
            measure(requests, store, settings, then=grow)
    _tell(tell())


def growing(write: Callable[[], Any]) -> Callable[[], None]:
    """Return a function that writes a page, unless that would take over a fifth of the time."""
    next_at = 0.0

    def grow() -> None:
        nonlocal next_at
        began = time.monotonic()
        if began >= next_at:
            write()
            now = time.monotonic()
            next_at = now + _WRITING_PAUSE * (now - began)

    return grow


def headlines(requests: Sequence[Request]) -> list[Request]:
    """Return requests for the quick pairs of headlines alone, the most valuable first.

    Times come before qualities, and the first system of each family before the others.
    """
    ranked = []
    for request in requests:
        declared = [found for found in request.family.statements if found.use == "headline"]
        for number, statement in enumerate(declared):
            pair = statement.pairs[-1]
            if request.given == ProblemId.parse(pair.problem):
                rank = (statement.measure != TIMES_FASTER, number, request.family.place)
                names = (pair.before, pair.after)
                ranked.append((rank, replace(request, variants=names, counted=())))
    ranked.sort(key=lambda entry: entry[0])
    return merged(request for _, request in ranked)


def _tell(page: Path) -> None:
    options.messages.print(f"Wrote {page}")
    print(page)


def _profile(results: Path, profiles: Path, settings: Settings, with_ladders: bool) -> None:
    """Write pages of flame graphs that are missing or older than the results.

    Each family has one of today's release and ours, and `with_ladders` one of each step of the
    published changes. If a problem cannot be profiled, this warns and goes on.
    """
    from reports.core.frames import read_results
    from reports.family.data import families
    from reports.family.page import ladder_pairs, main_pair, page_name
    from reports.flames import flame_page

    try:
        views = families(read_results(results))
    except UsageError:  # no cell was finished in time
        return
    options.check_folder(profiles)
    registry = options.found_registry()
    measured = results.stat().st_mtime
    for family in views:
        by_problem: dict[str, dict[Pair, Path]] = {}
        for pair in (*main_pair(family), *(ladder_pairs(family) if with_ladders else ())):
            page = profiles / page_name(family.name, pair)
            if not page.exists() or page.stat().st_mtime < measured:
                by_problem.setdefault(pair.problem, {})[pair] = page
        for problem, pages in by_problem.items():
            names = dict.fromkeys(name for pair in pages for name in (pair.before, pair.after))
            try:
                request = find_problem(registry, f"{family.name}@{problem}")
                request = replace(request, variants=tuple(filter(None, names)))
                with progress_display(f"profiling {family.name} on {problem}") as listen:
                    profiled = profile_variants(request, settings, _PROFILED_SECONDS, listen)
            except ShardbenchError as error:
                options.warn(f"No flame graphs of {family.name}: {error}")
                continue
            for pair, page in pages.items():
                both = [profiled[name] for name in (pair.after, pair.before) if name]
                options.write(page, flame_page(both, problem))
