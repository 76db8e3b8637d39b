"""`shardbench validate` and `calibrate`: check and fit cost estimates on this machine."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
import tomli_w
from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract import Family
from harness.contract.abilities import load
from harness.contract.estimates import BenchOptions, FittedMachine, Machine, Workbench
from harness.estimates.memory import MeasuredMemory, MemoryValidation, validate_memory
from harness.estimates.timing import OnProgress, Pair, Stopwatch, calibrate
from harness.estimates.validation import Validation, validate
from harness.measuring.environment import environment
from harness.measuring.jobs import start_server_for
from harness.measuring.timing.turns import SystemClock
from harness.model.cell import Environment
from harness.model.errors import ShardbenchError, UsageError
from harness.model.files import to_json
from harness.model.ids import ProblemId, WorkloadSpec
from harness.store.keys import key_of
from harness.store.lines import Store
from harness.topologies.lookup import placed_on
from reports import estimates as tables
from reports.core.terminal import as_terminal
from shardbench import completion, display, options
from shardbench.command import command
from shardbench.problems import able_family, elsewhere, judged
from shardbench.progress import progress_display
from shardbench.results_file import measuring_into

_FOLDER = Path("validations")
# How many plans are measured: at least, by default, at most.
_PLANS, _MEMORY_PLANS, _MOST = (3, 20), (1, 4), 200

device = click.option("--device", default="cpu", help="What kernels run on: cpu or cuda.")
indices = click.option(
    "--indices",
    default="uniform",
    help="How rows are looked up: uniform, zipf, zipf:EXPONENT, reuse.",
)


@command("shardbench validate -w merlin-tiny -t dgx_h100 -n 8")
@click.option(
    "--workload",
    "-w",
    multiple=True,
    required=True,
    help="A name, name[key=value,...], or a file that its family reads; may be repeated.",
    shell_complete=completion.workloads,
)
@options.topology
@options.gpus
@options.judge
@click.option(
    "--memory",
    is_flag=True,
    help="Count bytes instead of measuring times: by term, and at the peak.",
)
@click.option(
    "--plans", type=int, help="How many different plans to measure: 20, or 4 with --memory."
)
@device
@indices
@click.option(
    "--seconds",
    type=options.POSITIVE,
    default=240.0,
    help="Seconds to measure a workload; three plans are measured in any case.",
)
@click.option(
    "--gib",
    type=options.POSITIVE,
    help="GiB that a rank may take; by default 15 % of the machine's, or 60 % of what a "
    "GPU has left.",
)
@options.family
@click.option(
    "--out",
    type=options.PATH,
    default=_FOLDER,
    help="Folder for the results, which the report shows.",
)
@click.option(
    "--figure", type=options.OutFile(".svg"), help="File for the figure of one workload, .svg."
)
@options.fresh
@options.seed
@options.json
def validate_command(
    workload: tuple[str, ...],
    topology: str | None,
    gpus: int | None,
    machine: str,
    memory: bool,
    plans: int | None,
    device: str,
    indices: str,
    seconds: float,
    gib: float | None,
    family: str,
    out: Path,
    figure: Path | None,
    fresh: bool,
    seed: int,
    json: str,
) -> None:
    """Measure plans on this machine, and compare with their estimates.

    Runs the computation of each rank of a plan with real kernels. Communication is not measured.
    """
    if figure is not None and len(workload) > 1:
        raise UsageError("--figure is of one workload; the report draws all.")
    if memory and (figure is not None or indices != "uniform"):
        raise UsageError("--figure and --indices are of times; --memory has neither.")
    fewest, usual = _MEMORY_PLANS if memory else _PLANS
    plans = usual if plans is None else plans
    if not fewest <= plans <= _MOST:
        raise UsageError(f"--plans must be from {fewest} to {_MOST}, not {plans}.")
    able = able_family(options.found_registry(), family, "measuring", "measure")
    specs = [WorkloadSpec.parse(text) for text in dict.fromkeys(workload)]
    problems = [
        (spec, judged(able, placed_on(able, spec, topology, gpus), machine)) for spec in specs
    ]
    given = BenchOptions(device, indices, gib, seed)
    if memory:
        start_server_for([able])
    results: list[Any] = []
    for spec, placed in problems:
        problem = str(ProblemId(able.label(spec), placed.name, placed.gpus))
        path = out / re.sub(r"[^A-Za-z0-9_.=-]+", "_", f"{problem}.json")
        if memory:
            path = path.with_suffix(".memory.json")
        try:
            if memory:
                ranks = Store(path.with_suffix(".jsonl"), "memory", MeasuredMemory)
                with _measuring(able, ranks, given, fresh) as (bench, on_progress):
                    if not hasattr(bench, "memory"):
                        raise UsageError(f"Family '{able.name}' measures no memory.")
                    memories = bench.memory(able.work.build(spec, placed), plans)
                    arguments = (problem, bench.device, plans, memories, seed, ranks, on_progress)
                    results.append(validate_memory(*arguments))
            else:
                times = Store(path.with_suffix(".times.jsonl"), "time", Pair)
                with _measuring(able, times, given, fresh) as (bench, on_progress):
                    candidates = bench.candidates(able.work.build(spec, placed), plans)
                    stopwatch = _stopwatch(bench, times, given, on_progress)
                    validation = validate(problem, indices, candidates, stopwatch, seconds, seed)
                    note = elsewhere(able, placed.machine, _device_name(bench, device))
                    notes = (*filter(None, [note]), *validation.notes)
                    results.append(msgspec.structs.replace(validation, notes=notes))
        except ShardbenchError as error:
            if len(problems) == 1:
                raise
            options.warn(f"{spec}: {error}")  # go on with the other problems
            continue
        options.write(path, to_json(results[-1], indent=1) + "\n")
        options.messages.print(f"Wrote {path}")
        if json != "-" and len(problems) > 1 and not memory:
            display.show(_times_shown(results[-1]))
    if not results:
        raise click.exceptions.Exit(2)
    if figure is not None:
        options.write(figure, tables.draw_validation(results[0]).svg)
    if memory:
        shown = _memory_shown(results)
    elif len(problems) > 1:
        shown = as_terminal(tables.summary_table(results), f"{len(results)} problems\n")
    else:
        shown = _times_shown(results[0])
    options.show_or_write(json, results if len(problems) > 1 else results[0], shown)
    if len(results) < len(problems):
        raise click.exceptions.Exit(2)


@command("shardbench calibrate -o machine.toml")
@click.option(
    "--out",
    "-o",
    type=options.OutFile(".toml"),
    default="machine.toml",
    help="The machine's file, .toml.",
)
@device
@indices
@click.option(
    "--share",
    type=options.Number(min=0, max=4, min_open=True),
    default=1.0,
    help="Part of the kernels to measure.",
)
@options.family
@options.fresh
@options.seed
@options.json
def calibrate_command(
    out: Path,
    device: str,
    indices: str,
    share: float,
    family: str,
    fresh: bool,
    seed: int,
    json: str,
) -> None:
    """Fit the cost estimate to this machine; write a file for --machine.

    Measures kernels of many sizes, fits coefficients, and tests them on kernels of other sizes.
    Capacities and links are those of the topology that the machine is used with.
    """
    able = able_family(options.found_registry(), family, "measuring", "measure")
    given = BenchOptions(device, indices, None, seed)
    store = Store(_FOLDER / f"{out.stem}.times.jsonl", "time", Pair)
    with _measuring(able, store, given, fresh) as (bench, on_progress):
        machine = calibrate(bench.design(share), _stopwatch(bench, store, given, on_progress))
    options.write(out, _machine_file(machine, _device_name(bench, device), environment(seed)))
    fitted = as_terminal(tables.figures_table(machine), "Fitted, with 95 % intervals\n")
    errors = as_terminal(tables.errors_table(machine), "Geometric mean error\n")
    options.show_or_write(json, machine, Group(fitted, "", errors))
    options.messages.print(f"Wrote {out}")


def _device_name(bench: Workbench[Any], device: str) -> str:
    """Return the name that the driver of a device has, or the processor."""
    return (device == "cpu" and environment(0).cpu) or bench.device


def _machine_file(fitted: FittedMachine, device: str, here: Environment) -> str:
    """Return a machine's file, with its figures and their intervals to six digits."""
    machine = Machine(
        device=device,
        measured=(here.started or "")[:10],
        packages=dict(here.packages),
        figures={
            each.name: (_rounded(each.value), _rounded(each.low), _rounded(each.high))
            for each in fitted.figures
        },
        errors={each.purpose: round(each.error, 4) for each in fitted.errors},
    )
    document = msgspec.to_builtins(machine)
    del document["name"]  # it is the file's
    tables = tomli_w.dumps(document | {"figures": {}})
    figures = (f'"{name}" = {list(ends)}\n' for name, ends in machine.figures.items())
    about = "# Written by `shardbench calibrate`: figures with both ends of their 95 % intervals.\n"
    return about + tables.replace("[figures]\n", "[figures]\n" + "".join(figures))


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


@contextmanager
def _measuring(
    family: Family[Any, Any], store: Store[Any], given: BenchOptions, fresh: bool
) -> Iterator[tuple[Workbench[Any], OnProgress]]:
    """Lock a file of measurements, and yield a workbench and a function that shows progress."""
    workbench = load(family.abilities.measuring)(given)
    with measuring_into(store, fresh), progress_display() as progress:
        yield workbench, lambda what, done, of: progress.stage(f"measuring {what}", done, of)


def _stopwatch(
    bench: Workbench[Any], store: Store[Pair], given: BenchOptions, on_progress: OnProgress
) -> Stopwatch:
    """Return a stopwatch that goes on with stored times of the same options, code and machine."""
    key = key_of(environment(given.seed), bench.device, given.inputs, given.seed)
    return Stopwatch(bench, store, key, SystemClock(), on_progress)


def _times_shown(validation: Validation) -> RenderableType:
    """Render the plans of a problem, and the agreement of estimates with measurements."""
    title, seconds = Text(validation.problem, style="bold"), f"{validation.measured_s:.0f} s"
    return Group(
        title,
        Text(f"{validation.device}, indices {validation.inputs}, {seconds} of timing"),
        *map(Text, validation.notes),
        "",
        as_terminal(tables.decisions_table(validation)),
        "",
        as_terminal(tables.agreements_table([validation])),
        "",
        as_terminal(tables.residuals_table(validation), "Factors by which the estimates are off\n"),
        "",
        Text("Communication is modelled: it is in neither estimate nor measurement here."),
    )


def _memory_shown(validations: Sequence[MemoryValidation]) -> RenderableType:
    """Render the terms and the peaks of all problems together."""
    title = "Estimated over measured bytes, all ranks together\n"
    return Group(
        as_terminal(tables.terms_table(validations), title),
        "",
        as_terminal(tables.peaks_table(validations), "Peak of a step, by rank\n"),
        "",
        *map(Text, dict.fromkeys(note for result in validations for note in result.notes)),
        Text(f"{validations[0].device}; counted by torch's allocator, one rank at a time."),
    )
