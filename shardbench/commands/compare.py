"""`shardbench compare`: the variants of a family on one problem."""

from pathlib import Path
from typing import Annotated

import typer

from harness.comparison import Comparison
from harness.naming import WorkloadSpec
from harness.results import append_cells, to_json
from harness.topologies import find_topology
from shardbench import display
from shardbench.options import (
    Budget,
    Gpus,
    Seconds,
    Seed,
    TopologyName,
    Workload,
    check_writable,
    found_registry,
    names_in,
    settings_of,
    write,
)
from shardbench.progress import progress_display


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
    found = found_registry().find(family)
    settings = settings_of(budget, seconds, seed)
    comparison = Comparison(
        found,
        WorkloadSpec.parse(workload),
        find_topology(topology, gpus),
        names_in(variants),
        settings,
        against=against or None,
    )
    if json not in ("", "-"):
        check_writable(Path(json))
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
            write(Path(json), document + "\n")
    if results is not None:
        append_cells(results, cells)
    if all(cell.status != "ok" for cell in cells):
        raise typer.Exit(1)
