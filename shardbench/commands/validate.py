"""`shardbench validate`: what an estimate says of plans, and what they take on this machine."""

from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins
from msgspec.structs import replace

from harness.measuring.timing.clock import SystemClock
from harness.model.errors import UsageError
from harness.model.ids import ProblemId, WorkloadSpec
from harness.store.lock import hold
from harness.store.results import to_json
from harness.topologies.lookup import placed_on
from harness.validating.links import time_links
from harness.validating.validation import validate
from shardbench import completion
from shardbench.display.validation import shown
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
    write,
)
from shardbench.problem_options import GpusIfAny, TopologyIfAny, able_family

_FEWEST, _MOST = 3, 200


def validate_command(
    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            "-w",
            help="A name, name[key=value,...], or a file that its family reads.",
            autocompletion=completion.workloads,
        ),
    ],
    topology: TopologyIfAny = None,
    gpus: GpusIfAny = None,
    plans: Annotated[int, typer.Option(help="How many different plans to measure.")] = 20,
    device: DeviceOption = "cpu",
    indices: IndicesOption = "uniform",
    seconds: Annotated[
        float, typer.Option(help="Seconds of timing; each rank is timed once in any case.")
    ] = 240.0,
    memory: RankMemory = None,
    family: Annotated[
        str,
        typer.Option(help="The family, if several can.", autocompletion=completion.families),
    ] = "",
    out: Annotated[
        Path, typer.Option(help="Folder for what is found; the report shows what it holds.")
    ] = FOLDER,
    figure: Annotated[Path | None, typer.Option(help="File for the figure, .svg or .png.")] = None,
    fresh: Fresh = False,
    seed: Seed = 0,
    json: Json = "",
) -> None:
    """Measure plans on this machine, beside what is estimated.

    Does what each rank of a plan computes, with real kernels; what goes over links is modelled, and
    timed too where torchrun started several processes.
    """
    check_seconds("--seconds", seconds)
    check_writable(file_named(json))
    check_out(figure, ".svg", ".png")
    if not _FEWEST <= plans <= _MOST:
        raise UsageError(f"--plans must be from {_FEWEST} to {_MOST}, not {plans}.")
    found = able_family(found_registry(), family, "measuring", "measure")
    spec = WorkloadSpec.parse(workload)
    placed = placed_on(found, spec, topology, gpus)
    problem = str(ProblemId(found.label(spec), placed.name, placed.gpus))
    bench = bench_of(device, indices, memory, seed)
    able = measurable(found)
    links = able.links(device)
    if links is not None and not links.is_first:  # it takes part in the collectives alone
        time_links(links, [], SystemClock())
        links.leave()
        return
    check_folder(out)
    path = out / f"{file_name(problem)}.json"
    with hold(path), told() as tell:
        ready = able.candidates(found.work.build(spec, placed), plans, bench)
        done = validate(
            problem,
            indices,
            ready,
            path.with_suffix(".times.jsonl"),
            settings_of(bench, ready.device),
            seconds,
            SystemClock(),
            tell,
            fresh,
            seed,
        )
        if links is not None:
            sizes = [each.bytes_sent for each in done.decisions]
            done = replace(done, links=time_links(links, sizes, SystemClock()))
            links.leave()
        write(path, to_json(to_builtins(done), indent=1) + "\n")
    if figure is not None:
        from reports.figures.validation import draw_validation

        write(figure, draw_validation(done).as_file(figure.suffix))
    show_or_write(json, to_builtins(done), shown(done))
    messages.print(f"Wrote {path}")
