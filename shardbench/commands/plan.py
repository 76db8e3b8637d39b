"""`shardbench plan`: a plan by the best variant, for whoever carries it out."""

from pathlib import Path
from typing import Annotated

import typer

from harness.measuring.monitor import Event
from harness.model.ids import WorkloadSpec
from harness.planning.plan import plan as make_plan
from harness.store.results import to_json
from harness.topologies.lookup import placed_on
from shardbench import completion, display
from shardbench.display.plan import shown
from shardbench.options import check_seconds, check_writable, found_registry, messages, write
from shardbench.problem_options import GpusIfAny, TopologyIfAny, able_family
from shardbench.progress import progress_display


def plan(
    tables: Annotated[
        str,
        typer.Option(
            "--tables",
            "--workload",
            "-w",
            help="What to shard: a CSV/Parquet file, a name, or name[key=value,...].",
            autocompletion=completion.workloads,
        ),
    ],
    topology: TopologyIfAny = None,
    gpus: GpusIfAny = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the plan, as JSON.")] = Path(
        "plan.json"
    ),
    family: Annotated[
        str,
        typer.Option(
            help="The family to plan with, if several can.", autocompletion=completion.families
        ),
    ] = "",
    variant: Annotated[
        str,
        typer.Option(help="The variant to plan with.", autocompletion=completion.variant),
    ] = "",
    seconds: Annotated[
        float | None, typer.Option(help="Seconds that the search may take, if it can be limited.")
    ] = None,
    all_ranks: Annotated[bool, typer.Option("--all-ranks", help="Show every rank.")] = False,
) -> None:
    """Plan with the best variant, and write the plan as JSON.

    Shows what each rank gets, and how far the plan can be from the best one.
    """
    if seconds is not None:
        check_seconds("--seconds", seconds)
    found = able_family(found_registry(), family, "planning", "plan")
    workload = WorkloadSpec.parse(tables)
    placed = placed_on(found, workload, topology, gpus)
    check_writable(out)
    with progress_display("") as listen:
        if messages.is_terminal:  # elsewhere a refusal is one sentence, with no line before it
            listen(Event("planning", variant or "the family's choice", 1, 1))
        made = make_plan(found, workload, placed, variant, seconds)
    write(out, to_json(made.document, indent=2) + "\n")
    display.show(shown(made, all_ranks))
    messages.print(f"Wrote {out}")
