"""`shardbench validate`: what an estimate says of plans, and what they take on this machine."""

from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import to_builtins

from harness.contract import Family
from harness.contract.abilities.validation import Bench
from harness.estimates.times import Timing
from harness.estimates.validation import Validation, validate
from harness.measuring.timing.clock import SystemClock
from harness.model.errors import UsageError
from harness.model.ids import ProblemId, WorkloadSpec
from harness.model.topology import Topology
from harness.store.lock import hold
from harness.store.results import to_json
from shardbench import completion, display
from shardbench.display.validation import series_shown, shown
from shardbench.measuring_here import (
    FOLDER,
    DeviceOption,
    Fresh,
    IndicesOption,
    RankMemory,
    bench_of,
    file_name,
    measurable,
    settings_of,
    told,
)
from shardbench.options import (
    Json,
    Seed,
    check_folder,
    check_out,
    check_seconds,
    check_writable,
    file_named,
    found_registry,
    messages,
    show_or_write,
    warn,
    write,
)
from shardbench.problem_options import GpusIfAny, TopologyIfAny, able_family, placed_with_note

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
    memory: RankMemory = None,
    family: Annotated[
        str,
        typer.Option(help="The family, if several can.", autocompletion=completion.families),
    ] = "",
    out: Annotated[
        Path, typer.Option(help="Folder for what is found; the report shows what it holds.")
    ] = FOLDER,
    figure: Annotated[
        Path | None, typer.Option(help="File for the figure of one workload, .svg or .png.")
    ] = None,
    fresh: Fresh = False,
    seed: Seed = 0,
    json: Json = "",
) -> None:
    """Measure plans on this machine, beside what is estimated.

    Does what each rank of a plan computes, with real kernels. What goes over links is modelled.
    """
    check_seconds("--seconds", seconds)
    check_writable(file_named(json))
    check_out(figure, ".svg", ".png")
    if figure is not None and len(workload) > 1:
        raise UsageError("--figure is of one workload; the report draws all.")
    if not _FEWEST <= plans <= _MOST:
        raise UsageError(f"--plans must be from {_FEWEST} to {_MOST}, not {plans}.")
    found = able_family(found_registry(), family, "measuring", "measure")
    specs = [WorkloadSpec.parse(each) for each in dict.fromkeys(workload)]
    problems = [(spec, placed_with_note(found, spec, topology, gpus)) for spec in specs]
    bench = bench_of(device, indices, memory, seed)
    check_folder(out)
    done: list[Validation] = []
    for spec, placed in problems:
        try:
            one = _validated(found, spec, placed, bench, plans, seconds, out, fresh)
        except UsageError as error:
            if len(problems) == 1:
                raise
            warn(f"{spec}: {error}")  # the others are measured all the same
            continue
        done.append(one)
        if json != "-" and len(problems) > 1:
            display.show(shown(one))
    if not done:
        raise typer.Exit(2)
    if figure is not None:
        from reports.estimates.figure import draw_validation

        write(figure, draw_validation(done[0]).as_file(figure.suffix))
    document = to_builtins(done if len(done) > 1 else done[0])
    show_or_write(json, document, series_shown(done) if len(done) > 1 else shown(done[0]))
    if len(done) < len(problems):
        raise typer.Exit(2)


def _validated(
    family: Family[Any, Any],
    spec: WorkloadSpec,
    placed: Topology,
    bench: Bench,
    plans: int,
    seconds: float,
    out: Path,
    fresh: bool,
) -> Validation:
    """Validate one workload, and write what is found."""
    problem = str(ProblemId(family.label(spec), placed.name, placed.gpus))
    path = out / f"{file_name(problem)}.json"
    kept = path.with_suffix(".times.jsonl")
    with hold(path), told(kept, fresh) as tell:
        ready = measurable(family).candidates(family.work.build(spec, placed), plans, bench)
        timing = Timing(kept, settings_of(bench, ready.device), SystemClock(), tell, fresh)
        done = validate(problem, bench.inputs, ready, timing, seconds, bench.seed)
        write(path, to_json(to_builtins(done), indent=1) + "\n")
    messages.print(f"Wrote {path}")
    return done
