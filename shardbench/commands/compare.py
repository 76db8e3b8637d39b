"""`shardbench compare`: compare the variants of a family on one problem."""

from contextlib import nullcontext
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from harness.measuring.comparison import Comparison
from harness.store.results import append_cells
from shardbench import completion
from shardbench.display.comparison import document, shown
from shardbench.options import (
    Budget,
    Json,
    Memory,
    Seconds,
    Seed,
    check_writable,
    file_named,
    found_registry,
    names_in,
    settings_of,
    show_or_write,
)
from shardbench.problem_options import (
    Against,
    AnyProblem,
    GpusIfAny,
    TopologyIfAny,
    WorkloadIfAny,
    find_problem,
)
from shardbench.progress import progress_display
from shardbench.results_file import measuring_into


def compare(
    family: AnyProblem,
    workload: WorkloadIfAny = None,
    topology: TopologyIfAny = None,
    gpus: GpusIfAny = None,
    variants: Annotated[
        str,
        typer.Option(
            help="Only these, by name, with commas between.", autocompletion=completion.variants
        ),
    ] = "",
    against: Against = "",
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Time for a third of --seconds, with wider intervals."),
    ] = False,
    budget: Budget = 120.0,
    seconds: Seconds = 30.0,
    seed: Seed = 0,
    memory: Memory = None,
    json: Json = "",
    results: Annotated[
        Path | None, typer.Option(help="Append the cells to this results file (JSON Lines).")
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Also show memory, phases, counters.")
    ] = False,
) -> None:
    """Compare the variants of a family on one problem.

    Each variant is compared with the family's reference, or with the variant of --against.
    """
    request = find_problem(found_registry(), family, workload, topology, gpus)
    settings = settings_of(budget, seconds, seed, memory)
    if quick:
        settings = replace(settings, sampling=settings.sampling.quick())
    names = (*request.variants, *names_in(variants))
    comparison = Comparison(with_fields(request, variants=names, against=against), settings)
    check_writable(file_named(json))
    with measuring_into(results) if results else nullcontext():
        if results is not None:
            append_cells(results, [])  # fails before measuring if the file is not writable
        with progress_display(str(comparison.problem)) as listen:
            cells = comparison.run(listen)
        if results is not None:
            append_cells(results, cells)
    show_or_write(json, document(cells), shown(cells, details))
    if all(cell.status != "ok" for cell in cells):
        raise typer.Exit(1)
