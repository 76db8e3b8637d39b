"""`shardbench report`: one page from a results file, or from the suite measured first."""

from pathlib import Path
from typing import Annotated

import typer

from harness.errors import UsageError
from harness.measuring.comparison import Settings
from harness.sweeps.sweep import is_outdated, plan_sweep, set_aside
from shardbench.options import (
    SUITE_BUDGET,
    SUITE_SECONDS,
    Budget,
    Memory,
    Seconds,
    Seed,
    found_registry,
    messages,
    settings_of,
)
from shardbench.results_file import measuring_into, tell_damaged
from shardbench.sweeping import measure


def report(
    results: Annotated[
        Path | None,
        typer.Argument(help="A results file; without one the suite is measured first."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("report"),
    fresh: Annotated[bool, typer.Option(help="Measure again what is measured already.")] = False,
    large: Annotated[
        bool, typer.Option(help="Measure the large problems of the suite too.")
    ] = False,
    budget: Budget = SUITE_BUDGET,
    seconds: Seconds = SUITE_SECONDS,
    seed: Seed = 0,
    memory: Memory = None,
) -> None:
    """Write the report: one offline page, Markdown, figures and their data."""
    from reports.page import write_report  # pandas and matplotlib take seconds to import

    if results is None:
        results = Path("results") / ("report-large.jsonl" if large else "report.jsonl")
        settings = settings_of(budget, seconds, seed, memory)
        with measuring_into(results):
            _measure(results, settings, fresh, large)
    elif large:
        raise UsageError(f"--large measures a suite; the report of {results} takes no --large.")
    else:
        tell_damaged(results)
    page = write_report(results, out)
    messages.print(f"Wrote {page} and {page.with_name('report.md')}", soft_wrap=True)
    print(page)  # noqa: T201


def _measure(results: Path, settings: Settings, fresh: bool, large: bool) -> None:
    if (fresh or is_outdated(results, settings)) and (kept := set_aside(results)):
        messages.print(f"What was measured before is kept in {kept}.", soft_wrap=True)
    measure(plan_sweep(found_registry().families, results, settings, large), results, settings)
