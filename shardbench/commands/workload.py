"""`shardbench workload`: draw a workload's contents, or import a workload."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.contract import Family
from harness.contract.abilities.inventory import ImportRequest
from harness.contract.family import load
from harness.contract.registry import Registry
from harness.model.errors import UnknownName, UsageError, unknown
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import placed_on
from shardbench import completion, display
from shardbench.command import Command, GroupedCommands, examples
from shardbench.display.inventory import outcome, shown, to_csv
from shardbench.options import check_out, check_writable, found_registry, messages, write
from shardbench.problem_options import FamilyIfSeveral, GpusIfAny, TopologyIfAny, able_family

# An arbitrary topology for the suggested next command.
_EXAMPLE = "-t dgx_h100 -n 16"

workload_app = typer.Typer(
    cls=GroupedCommands,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Draw a workload's contents, or import one from other tools.",
    epilog=examples("shardbench workload show dlrm-856"),
)


@workload_app.command(
    "show", cls=Command, epilog=examples("shardbench workload show dlrm-856 --top 5")
)
def show(
    workload: Annotated[
        str,
        typer.Argument(
            help="A name, name[key=value,...], or a file that its family reads.",
            autocompletion=completion.workloads,
        ),
    ],
    family: FamilyIfSeveral = "",
    topology: TopologyIfAny = None,
    gpus: GpusIfAny = None,
    sort: Annotated[str, typer.Option(help="The column by which parts are ordered.")] = "",
    top: Annotated[int, typer.Option(min=1, help="How many parts to show.")] = 10,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write every part to this file (.csv)."),
    ] = None,
) -> None:
    """Draw a workload's contents: distributions and the largest parts."""
    check_out(out, ".csv")
    spec = WorkloadSpec.parse(workload)
    found = _family_of(found_registry(), spec, family)
    inventory = load(found.abilities.inventory)
    if inventory is None:
        raise UsageError(f"The contents of workloads of family '{found.name}' cannot be shown.")
    if topology is None and gpus is None:
        placed = found.brings(spec)
    else:
        placed = placed_on(found, spec, topology, gpus)
    held = inventory(spec, placed)
    sort = sort or held.sort
    held.place(sort)
    if out is None:
        display.show(shown(held, sort, top))
        return
    write(out, to_csv(held))
    messages.print(held.summary)
    messages.print(f"Wrote {out}")


def _family_of(registry: Registry, spec: WorkloadSpec, name: str) -> Family[Any, Any]:
    """Return the family with a workload of this name, or the family that can read it as a file."""
    if name:
        family = registry.find(name)
        family.label(spec)
        return family
    known = {
        family.name: {workload.name for workload in family.workloads()}
        for family in registry.families
    }
    if named := [family for family in registry.families if spec.name in known[family.name]]:
        return _only(named, spec)
    able: list[Family[Any, Any]] = []
    errors: list[UsageError] = []
    for family in registry.families:
        try:
            family.label(spec)
            family.brings(spec)  # raises if another family captured the file
            able.append(family)
        except UnknownName:
            pass
        except UsageError as error:
            errors.append(error)
    if able:
        return _only(able, spec)
    if errors:
        raise errors[0]
    raise unknown("workload", spec.name, set().union(*known.values()))


def _only(families: list[Family[Any, Any]], spec: WorkloadSpec) -> Family[Any, Any]:
    if len(families) > 1:
        names = ", ".join(family.name for family in families)
        raise UsageError(f"Workload '{spec}' is known to several families; name one: {names}.")
    return families[0]


@workload_app.command(
    "import",
    cls=Command,
    epilog=examples("shardbench workload import tables.parquet -o my_tables.csv"),
)
def import_workload(
    source: Annotated[str, typer.Argument(help="A file, or module:function, whose code is run.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")],
    form: Annotated[
        str, typer.Option("--format", help="What the source is; by its name unless given.")
    ] = "auto",
    column: Annotated[
        list[str] | None,
        typer.Option(help="FIELD=COLUMN: which column of the source holds a field; repeatable."),
    ] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option(help="FIELD=VALUE: a field's value where the source lacks it; repeatable."),
    ] = None,
    family: FamilyIfSeveral = "",
) -> None:
    """Import a workload from another tool's format."""
    found = able_family(found_registry(), family, "importing", "import")
    read = load(found.abilities.importing)
    if read is None:
        raise UsageError(f"Workloads of family '{family}' cannot be imported.")
    _check_target(source, out)
    request = ImportRequest(
        source=source,
        target=str(out),
        format="" if form == "auto" else form,
        columns=_pairs("--column", column or []),
        assumed=_pairs("--assume", assume or []),
    )
    imported = read(request)
    write(out, imported.content)
    display.show(outcome(imported, imported.inventory.sort))
    command = f"shardbench compare {found.name} -w {shlex.quote(str(out))} {_EXAMPLE}"
    messages.print(f"Wrote {out}; go on with\n  {command}")


def _check_target(source: str, out: Path) -> None:
    """Raise UsageError if `out` is not a valid workload name, or if it is the source itself."""
    check_writable(out)
    try:
        named = WorkloadSpec.parse(str(out))
    except UsageError:
        named = WorkloadSpec("")
    if named != WorkloadSpec(str(out)):
        raise UsageError(f"{out} cannot be named as a workload: leave out '[', ']' and '@'.")
    if out.exists() and Path(source).exists() and out.samefile(source):
        raise UsageError(f"{out} is the source itself; write to another file.")


def _pairs(option: str, given: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not (key and equals and value):
            raise UsageError(f"{option} must be given as FIELD=..., not '{text}'.")
        if key in pairs:
            raise UsageError(f"{option} gives '{key}' twice.")
        pairs[key] = value
    return pairs
