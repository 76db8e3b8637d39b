"""`shardbench compare`: compare the variants of a family on one problem."""

from contextlib import nullcontext
from dataclasses import replace as with_fields
from pathlib import Path

import click
from msgspec.structs import replace

from harness.measuring.comparison import Comparison
from harness.measuring.request import Request
from harness.model.cell import Cell
from harness.model.settings import Settings
from harness.store.cells import CellStore
from harness.suites.sweep import resumed, tasks_of
from reports.core.formatting import plural
from shardbench import completion, options, problem_options
from shardbench.command import command
from shardbench.display.comparison import document, shown
from shardbench.progress import progress_display
from shardbench.results_file import measuring_into


@command(
    "shardbench compare reshard@transformer[layers=2]/dgx_h100:4 --quick",
    "shardbench compare embedding -w dlrm-856 -t dgx_h100 -n 16 \\",
    "    --variants compiled,certified --against compiled",
)
@problem_options.problem
@click.option(
    "--variants",
    default="",
    help="Only these, by name, with commas between.",
    shell_complete=completion.variants,
)
@problem_options.against
@click.option("--quick", is_flag=True, help="Time for a third of --seconds, with wider intervals.")
@options.measuring(budget_s=120.0, seconds_s=30.0)
@options.json
@click.option(
    "--results", type=options.PATH, help="Append the cells to this results file, or go on with it."
)
@options.fresh
@click.option("--details", is_flag=True, help="Also show memory, phases, counters.")
def compare(
    request: Request,
    variants: str,
    against: str,
    quick: bool,
    settings: Settings,
    json: str,
    results: Path | None,
    fresh: bool,
    details: bool,
) -> None:
    """Compare the variants of a family on one problem.

    Each variant is compared with the family's reference, or with the variant of --against.
    """
    if quick:
        settings = replace(settings, sampling=settings.sampling.quick())
    names = (*request.variants, *options.names_in(variants))
    request = with_fields(request, variants=names, against=against)
    store = CellStore(results) if results else None
    with measuring_into(store) if store else nullcontext():
        if store and not fresh:
            (request,) = resumed(tasks_of([request], settings), store)
            if request.stored:
                options.messages.print(
                    f"{plural(len(request.stored), 'cell')} of {results} count; --fresh measures "
                    "all again."
                )
        if store:
            store.add()  # fails before measuring if the file is not writable

        def keep(cell: Cell) -> None:
            if store:
                store.add_cells([cell])

        comparison = Comparison(request, settings)
        with progress_display(str(comparison.problem)) as listen:
            cells = [*request.stored, *comparison.run(listen, keep)]
    order = list(request.family.variants)
    cells.sort(key=lambda cell: order.index(cell.variant))
    options.show_or_write(json, document(cells), shown(cells, details))
    if all(cell.status != "ok" for cell in cells):
        raise click.exceptions.Exit(1)
