"""`shardbench profile`: where a variant's time goes."""

from pathlib import Path
from typing import Annotated

import typer

from harness.comparison import Comparison
from harness.naming import WorkloadSpec
from harness.profiling import write_files
from harness.topologies import find_topology
from shardbench.options import (
    Budget,
    Gpus,
    TopologyName,
    Workload,
    found_registry,
    messages,
    settings_of,
)
from shardbench.progress import progress_display


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
    found = found_registry().find(family)
    found.find(variant)
    settings = settings_of(budget, budget, 0)
    comparison = Comparison(
        found, WorkloadSpec.parse(workload), find_topology(topology, gpus), [variant], settings
    )
    with progress_display(str(comparison.problem)) as listen:
        files = comparison.profile(variant, listen)
    written = write_files(files, out / comparison.cell_id(variant).file_stem)
    print(files["txt"])  # noqa: T201
    for path in written:
        messages.print(f"Wrote {path}", soft_wrap=True)
