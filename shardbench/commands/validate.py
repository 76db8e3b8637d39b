"""`shardbench validate`: the estimates of plans, compared with measurements on this machine."""

import re
from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins

from harness.contract.abilities.estimates import Bench
from harness.estimates.validation import Validation, validate
from harness.model.errors import UsageError
from harness.model.ids import ProblemId, WorkloadSpec
from harness.model.topology import Topology
from harness.store.results import to_json
from shardbench import completion, display
from shardbench.display.estimates import series_shown, validation_shown
from shardbench.measuring_here import (
    FOLDER,
    DeviceOption,
    FamilyOption,
    Fresh,
    IndicesOption,
    measuring,
    measuring_family,
)
from shardbench.options import (
    Json,
    Seed,
    check_folder,
    check_out,
    check_seconds,
    check_writable,
    file_named,
    messages,
    show_or_write,
    warn,
    write,
)
from shardbench.problem_options import GpusIfAny, TopologyIfAny, placed_with_note

_FEWEST, _MOST = 3, 200


def validate_command(
    workload: Annotated[
        list[str],
        typer.Option(
            "--workload",
            "-w",
            help="A name, name[key=value,...], or a file that its family reads; may be repeated.",
            autocompletion=completion.workloads,
        ),
    ],
    topology: TopologyIfAny = None,
    gpus: GpusIfAny = None,
    plans: Annotated[int, typer.Option(help="How many different plans to measure.")] = 20,
    device: DeviceOption = "cpu",
    indices: IndicesOption = "uniform",
    seconds: Annotated[
        float,
        typer.Option(help="Seconds to measure a workload; three plans are measured in any case."),
    ] = 240.0,
    memory: Annotated[
        float | None,
        typer.Option(
            help="GiB that a rank may take; by default 15 % of the machine's, or 60 % of what a "
            "GPU has left.",
        ),
    ] = None,
    family: FamilyOption = "",
    out: Annotated[
        Path, typer.Option(help="Folder for the results, which the report shows.")
    ] = FOLDER,
    figure: Annotated[
        Path | None, typer.Option(help="File for the figure of one workload, .svg or .png.")
    ] = None,
    fresh: Fresh = False,
    seed: Seed = 0,
    json: Json = "",
) -> None:
    """Measure plans on this machine, and compare with their estimates.

    Runs the computation of each rank of a plan with real kernels. Communication is modelled.
    """
    check_seconds("--seconds", seconds)
    check_writable(file_named(json))
    check_out(figure, ".svg", ".png")
    if figure is not None and len(workload) > 1:
        raise UsageError("--figure is of one workload; the report draws all.")
    if not _FEWEST <= plans <= _MOST:
        raise UsageError(f"--plans must be from {_FEWEST} to {_MOST}, not {plans}.")
    if memory is not None and not 0 < memory < float("inf"):
        raise UsageError(f"--memory must be a positive number of GiB, not {memory:g}.")
    found, measurable = measuring_family(family)
    specs = [WorkloadSpec.parse(text) for text in dict.fromkeys(workload)]
    problems = [(spec, placed_with_note(found, spec, topology, gpus)) for spec in specs]
    bench = Bench(device, indices, memory, seed)
    check_folder(out)

    def validated(spec: WorkloadSpec, placed: Topology) -> Validation:
        problem = str(ProblemId(found.label(spec), placed.name, placed.gpus))
        path = out / f"{re.sub(r'[^A-Za-z0-9_.=-]+', '_', problem).strip('_')}.json"
        with measuring(path.with_suffix(".times.jsonl"), bench, fresh) as stopwatch:
            ready = measurable.candidates(found.work.build(spec, placed), plans, bench)
            one = validate(problem, indices, ready, stopwatch(ready), seconds, seed)
            write(path, to_json(to_builtins(one), indent=1) + "\n")
        messages.print(f"Wrote {path}")
        return one

    done: list[Validation] = []
    for spec, placed in problems:
        try:
            done.append(validated(spec, placed))
        except UsageError as error:
            if len(problems) == 1:
                raise
            warn(f"{spec}: {error}")  # the others are measured all the same
            continue
        if json != "-" and len(problems) > 1:
            display.show(validation_shown(done[-1]))
    if not done:
        raise typer.Exit(2)
    if figure is not None:
        from reports.estimates.figure import draw_validation

        write(figure, draw_validation(done[0]).as_file(figure.suffix))
    if len(done) > 1:
        show_or_write(json, to_builtins(done), series_shown(done))
    else:
        show_or_write(json, to_builtins(done[0]), validation_shown(done[0]))
    if len(done) < len(problems):
        raise typer.Exit(2)
