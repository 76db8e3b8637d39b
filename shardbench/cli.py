"""`shardbench`: one function a command; what it prints is made in `display`."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from harness.comparison import Comparison, Settings
from harness.errors import ShardbenchError, UsageError, unknown
from harness.following import Event
from harness.naming import WorkloadSpec
from harness.planning import plan as make_plan
from harness.profiling import replace_file, write_files
from harness.registry import Family, Registry, load_registry
from harness.results import append_cells, to_json
from harness.sampling import SamplingRule
from harness.sweep import is_outdated, plan_sweep, set_aside, sweep
from harness.topologies import find_topology
from shardbench import display, listings, ranks
from shardbench.progress import progress_display

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Profiles and compares the programs that decide how a model is sharded.",
)
_messages = Console(stderr=True, highlight=False, markup=False)

Workload = Annotated[
    str,
    typer.Option(
        "--workload", "-w", help="A name, name[key=value,...], or a file that its family reads."
    ),
]
TopologyName = Annotated[
    str, typer.Option("--topology", "-t", help="A preset's name, or FILE.csv or FILE.csv#NAME.")
]
Gpus = Annotated[int, typer.Option("--gpus", "-n", help="How many GPUs to plan for.")]
Budget = Annotated[float, typer.Option(help="Seconds that one call may take before it is stopped.")]
Seconds = Annotated[
    float,
    typer.Option(help="Seconds to spend on timing a problem; two blocks are timed in any case."),
]
Seed = Annotated[int, typer.Option(help="Seed of the order of the calls and of the resampling.")]


def _registry() -> Registry:
    registry = load_registry()
    for name, reason in registry.failures.items():
        _messages.print(f"Family '{name}' could not be loaded: {reason}", style="yellow")
    return registry


def _settings(budget: float, seconds: float, seed: int) -> Settings:
    _check_seconds("--budget", budget)
    _check_seconds("--seconds", seconds)
    return Settings(budget, SamplingRule(seconds=seconds, seed=seed))


def _check_seconds(option: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise UsageError(f"{option} must be a positive number of seconds, not {value:g}.")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@app.command("list")
def list_command(
    what: Annotated[str, typer.Argument(help="families, variants, workloads, topologies")] = "all",
    sources: Annotated[bool, typer.Option(help="Say where the figures are from.")] = False,
) -> None:
    """List what there is: families, variants, workloads, topologies."""
    kinds: dict[str, Callable[[], RenderableType]] = {
        "families": lambda: listings.families(_registry()),
        "variants": lambda: listings.variants(_registry()),
        "workloads": lambda: listings.workloads(_registry(), sources),
        "topologies": lambda: listings.topologies(sources),
    }
    if what != "all" and what not in kinds:
        raise unknown("thing to list", what, kinds)
    for name, listing in kinds.items():
        if what in ("all", name):
            display.show(listing())


@app.command()
def compare(
    family: Annotated[str, typer.Argument(help="The family to compare the variants of.")],
    workload: Workload,
    topology: TopologyName,
    gpus: Gpus,
    variants: Annotated[str, typer.Option(help="Only these, by name, with commas between.")] = "",
    against: Annotated[
        str, typer.Option(help="The variant to compare with, instead of the family's reference.")
    ] = "",
    budget: Budget = 120.0,
    seconds: Seconds = 60.0,
    seed: Seed = 0,
    json: Annotated[
        str, typer.Option("--json", help="Write one JSON document to this file; - for stdout.")
    ] = "",
    results: Annotated[
        Path | None, typer.Option(help="Append the cells to this results file (JSON Lines).")
    ] = None,
    details: Annotated[bool, typer.Option(help="Also show memory, phases, counters.")] = False,
) -> None:
    """Compare the variants of a family on one problem."""
    found = _registry().find(family)
    settings = _settings(budget, seconds, seed)
    comparison = Comparison(
        found,
        WorkloadSpec.parse(workload),
        find_topology(topology, gpus),
        _names(variants),
        settings,
        against=against or None,
    )
    if json not in ("", "-"):
        _check_writable(Path(json))
    if results is not None:
        append_cells(results, [])  # whether it can be written is better known before measuring
    with progress_display(str(comparison.problem)) as listen:
        cells = comparison.run(listen)
    document = to_json(display.document(cells), indent=2)
    if json == "-":
        print(document)  # noqa: T201
    else:
        display.show(display.comparison(cells, details))
        if json:
            _write(Path(json), document + "\n")
    if results is not None:
        append_cells(results, cells)
    if all(cell.status != "ok" for cell in cells):
        raise typer.Exit(1)


@app.command()
def profile(
    family: Annotated[str, typer.Argument(help="The variant's family.")],
    variant: Annotated[str, typer.Argument(help="The variant to profile.")],
    workload: Workload,
    topology: TopologyName,
    gpus: Gpus,
    budget: Budget = 600.0,
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("profiles"),
) -> None:
    """Profile a variant: an HTML flame graph, a speedscope file and a text tree."""
    found = _registry().find(family)
    found.find(variant)
    settings = _settings(budget, budget, 0)
    comparison = Comparison(
        found, WorkloadSpec.parse(workload), find_topology(topology, gpus), [variant], settings
    )
    with progress_display(str(comparison.problem)) as listen:
        files = comparison.profile(variant, listen)
    written = write_files(files, out / comparison.cell_id(variant).file_stem)
    print(files["txt"])  # noqa: T201
    for path in written:
        _messages.print(f"Wrote {path}", soft_wrap=True)


@app.command()
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
    budget: Budget = 60.0,
    seconds: Seconds = 20.0,
    seed: Seed = 0,
) -> None:
    """Write the report: one offline page, Markdown, figures and their data."""
    from reports.page import write_report  # pandas and matplotlib take seconds to import

    if results is None:
        results = Path("results") / ("report-large.jsonl" if large else "report.jsonl")
        _measure(results, _settings(budget, seconds, seed), fresh, large)
    elif large:
        raise UsageError(f"--large measures a suite; the report of {results} takes no --large.")
    page = write_report(results, out)
    _messages.print(f"Wrote {page} and {page.with_name('report.md')}", soft_wrap=True)
    print(page)  # noqa: T201


@app.command()
def plan(
    tables: Annotated[
        str,
        typer.Option(
            "--tables",
            "--workload",
            "-w",
            help="What to shard: a CSV/Parquet file, a name, or name[key=value,...].",
        ),
    ],
    topology: TopologyName,
    gpus: Gpus,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the plan, as JSON.")] = Path(
        "plan.json"
    ),
    family: Annotated[str, typer.Option(help="The family to plan with, if several can.")] = "",
    variant: Annotated[str, typer.Option(help="The variant to plan with.")] = "",
    seconds: Annotated[
        float | None, typer.Option(help="Seconds that the search may take, if it can be limited.")
    ] = None,
    all_ranks: Annotated[bool, typer.Option("--all-ranks", help="Show every rank.")] = False,
) -> None:
    """Plan with the best variant, write the plan as JSON, and show what each rank gets."""
    if seconds is not None:
        _check_seconds("--seconds", seconds)
    found = _planning_family(family)
    _check_writable(out)
    with progress_display("") as listen:
        listen(Event("planning", variant or "the family's choice", 1, 1))
        made = make_plan(
            found, WorkloadSpec.parse(tables), find_topology(topology, gpus), variant, seconds
        )
    _write(out, to_json(made.document, indent=2) + "\n")
    display.show(ranks.planned(made, all_ranks))
    _messages.print(f"Wrote {out}", soft_wrap=True)


def _planning_family(name: str) -> Family[Any, Any]:
    registry = _registry()
    if name:
        return registry.find(name)
    able = [family for family in registry.families if family.planning]
    if len(able) != 1:
        names = ", ".join(family.name for family in able) or "none"
        raise UsageError(f"Name a family with --family; those that can plan are: {names}.")
    return able[0]


def _measure(results: Path, settings: Settings, fresh: bool, large: bool) -> None:
    if (fresh or is_outdated(results, settings)) and (kept := set_aside(results)):
        _messages.print(f"What was measured before is kept in {kept}.", soft_wrap=True)
    steps = plan_sweep(_registry().families, results, settings, large)
    done = sum(step.measured for step in steps)
    if done:
        _messages.print(
            f"{done} of {len(steps)} problems are measured already in {results}; "
            "--fresh measures them again.",
            soft_wrap=True,
        )
    with progress_display("", total=len(steps) - done) as listen:
        for step, cells in sweep(steps, results, settings, listen):
            ended = ", ".join(
                f"{cell.variant} {cell.status}" for cell in cells if cell.status != "ok"
            )
            listen.finished(f"{step.family.name} on {step.problem}: {ended or 'all ok'}")


def _check_writable(path: Path) -> None:
    """Find out before measuring for minutes."""
    if not path.parent.is_dir():
        raise UsageError(f"{path} cannot be written: {path.parent} is not a folder.")
    if path.is_dir():
        raise UsageError(f"{path} cannot be written: it is a folder.")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path} cannot be written: {path.parent} is read-only.")


def _write(path: Path, text: str) -> None:
    try:
        replace_file(path, text)
    except OSError as error:
        raise ShardbenchError(f"{path} cannot be written: {error.strerror or error}.") from None


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; exits with 2 on bad usage, with 1 if something else failed."""
    try:
        app(arguments)
    except ShardbenchError as error:
        _messages.print(str(error), style="red", soft_wrap=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
