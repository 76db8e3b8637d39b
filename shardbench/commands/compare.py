"""`shardbench compare`: compare the variants of a family on one problem."""

from contextlib import nullcontext
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from harness.measuring.comparison import Comparison
from harness.model.cell import Cell
from harness.store.cells import CellStore
from shardbench import completion, options, problem_options
from shardbench.command import InterruptedCommand
from shardbench.display.comparison import document, shown
from shardbench.progress import progress_display
from shardbench.results_file import measuring_into


def compare(
    family: problem_options.AnyProblem,
    workload: problem_options.WorkloadIfAny = None,
    topology: problem_options.TopologyIfAny = None,
    gpus: problem_options.GpusIfAny = None,
    variants: Annotated[
        str,
        typer.Option(
            help="Only these, by name, with commas between.", autocompletion=completion.variants
        ),
    ] = "",
    against: problem_options.Against = "",
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Time for a third of --seconds, with wider intervals."),
    ] = False,
    budget: options.Budget = 120.0,
    seconds: options.Seconds = 30.0,
    seed: options.Seed = 0,
    memory: options.Memory = None,
    json: options.Json = "",
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
    request = problem_options.find_problem(
        options.found_registry(), family, workload, topology, gpus
    )
    settings = options.settings_of(budget, seconds, seed, memory)
    if quick:
        settings = replace(settings, sampling=settings.sampling.quick())
    names = (*request.variants, *options.names_in(variants))
    comparison = Comparison(with_fields(request, variants=names, against=against), settings)
    options.check_writable(options.file_named(json))
    store = CellStore(results) if results else None
    with measuring_into(store) if store else nullcontext():
        if store:
            store.add()  # fails before measuring if the file is not writable

        def keep(cell: Cell) -> None:
            if store:
                store.add_cells([cell])

        try:
            with progress_display(str(comparison.problem)) as listen:
                cells = comparison.run(listen, keep)
        except KeyboardInterrupt:
            if results is None:
                raise
            raise InterruptedCommand(f"finished cells are kept in {results}.") from None
    options.show_or_write(json, document(cells), shown(cells, details))
    if all(cell.status != "ok" for cell in cells):
        raise typer.Exit(1)
