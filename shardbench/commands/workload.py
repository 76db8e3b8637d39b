"""`shardbench workload`: draw a workload's contents, or import a workload."""

import shlex
from pathlib import Path

import click

from harness.contract.abilities import load
from harness.contract.workloads import ImportRequest
from harness.model.errors import UsageError
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import placed_on
from shardbench import completion, display, options, problem_options
from shardbench.command import command, examples
from shardbench.display.inventory import outcome, shown, to_csv


@click.group(no_args_is_help=True, epilog=examples("shardbench workload show dlrm-856"))
def workload() -> None:
    """Draw a workload's contents, or import one from other tools."""


@command("shardbench workload show dlrm-856 --top 5")
@click.argument(
    "workload",
    help="A name, name[key=value,...], or a file that its family reads.",
    shell_complete=completion.workloads,
)
@problem_options.family
@problem_options.topology
@problem_options.gpus
@click.option("--sort", default="", help="The column by which parts are ordered.")
@click.option("--top", type=click.IntRange(min=1), default=10, help="How many parts to show.")
@click.option(
    "--out", "-o", type=options.OutFile(".csv"), help="Write every part to this file (.csv)."
)
def show(
    workload: str,
    family: str,
    topology: str | None,
    gpus: int | None,
    sort: str,
    top: int,
    out: Path | None,
) -> None:
    """Draw a workload's contents: distributions and the largest parts."""
    spec = WorkloadSpec.parse(workload)
    registry = options.found_registry()
    taking = problem_options.able_family(registry, family, "inventory", "show this", spec)
    show_inventory = load(taking.abilities.inventory)
    if show_inventory is None:
        raise UsageError(f"The contents of workloads of family '{family}' cannot be shown.")
    if topology is None and gpus is None:
        taking.label(spec)  # raises UsageError if the workload does not exist
        placed = taking.brings(spec)
    else:
        placed = placed_on(taking, spec, topology, gpus)
    inventory = show_inventory(spec, placed)
    sort = sort or inventory.sort
    inventory.place(sort)  # raises UsageError for an unknown column
    if out is None:
        display.show(shown(inventory, sort, top))
        return
    options.write(out, to_csv(inventory))
    options.messages.print(inventory.summary)
    options.messages.print(f"Wrote {out}")


@command("shardbench workload import tables.parquet -o my_tables.csv")
@click.argument("source", help="A file, or module:function, whose code is run.")
@click.option("--out", "-o", type=options.OutFile(), required=True, help="The file to write.")
@click.option(
    "form", "--format", default="auto", help="What the source is; by its name unless given."
)
@click.option(
    "--column",
    multiple=True,
    help="FIELD=COLUMN: which column of the source holds a field; repeatable.",
)
@click.option(
    "--assume",
    multiple=True,
    help="FIELD=VALUE: a field's value where the source lacks it; repeatable.",
)
@problem_options.family
def import_workload(
    source: str, out: Path, form: str, column: tuple[str, ...], assume: tuple[str, ...], family: str
) -> None:
    """Import a workload from another tool's format."""
    able = problem_options.able_family(options.found_registry(), family, "importing", "import")
    read = load(able.abilities.importing)
    if read is None:
        raise UsageError(f"Workloads of family '{family}' cannot be imported.")
    if any(sign in str(out) for sign in "[]@"):
        raise UsageError(f"{out} cannot be named as a workload: leave out '[', ']' and '@'.")
    if out.exists() and Path(source).exists() and out.samefile(source):
        raise UsageError(f"{out} is the source itself; write to another file.")
    request = ImportRequest(
        source=source,
        target=str(out),
        format="" if form == "auto" else form,
        columns=_pairs("--column", column),
        assumed=_pairs("--assume", assume),
    )
    imported = read(request)
    options.write(out, imported.content)
    display.show(outcome(imported, imported.inventory.sort))
    options.messages.print(
        f"Wrote {out}; go on with\n  shardbench compare {able.name} "
        f"-w {shlex.quote(str(out))} -t dgx_h100 -n 16"
    )


def _pairs(option: str, given: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not (key and equals and value):
            raise UsageError(f"{option} must be given as FIELD=..., not '{text}'.")
        if key in pairs:
            raise UsageError(f"{option} gives '{key}' twice.")
        pairs[key] = value
    return pairs


workload.add_command(show)
workload.add_command(import_workload, "import")
