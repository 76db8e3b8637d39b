"""Read the family, variant and problem of a command, from options or from an id."""

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.contract import Family
from harness.contract.registry import Registry
from harness.measuring.request import Request
from harness.model.errors import UsageError
from harness.model.ids import CellId, ProblemId, WorkloadSpec
from harness.model.topology import Topology
from harness.topologies.lookup import placed_on
from shardbench import completion
from shardbench.options import warn

ID = "family/variant@workload/topology:gpus"

WorkloadIfAny = Annotated[
    str | None,
    typer.Option(
        "--workload",
        "-w",
        help="A name, name[key=value,...], or a file that its family reads.",
        autocompletion=completion.workloads,
    ),
]
TopologyIfAny = Annotated[
    str | None,
    typer.Option(
        "--topology",
        "-t",
        help="A preset's name, or FILE.csv or FILE.csv#NAME; a captured workload has its own.",
        autocompletion=completion.topologies,
    ),
]
GpusIfAny = Annotated[
    int | None,
    typer.Option(
        "--gpus", "-n", help="How many GPUs to plan for; a captured workload has its own."
    ),
]
AnyProblem = Annotated[
    str,
    typer.Argument(
        help=f"FAMILY or FAMILY/VARIANT; or one id for all, {ID}, or a benchmark as asv prints it.",
        autocompletion=completion.cells,
    ),
]
FamilyIfSeveral = Annotated[
    str,
    typer.Option(
        "--family", help="The family, if several can.", autocompletion=completion.families
    ),
]
Against = Annotated[
    str,
    typer.Option(
        "--against", help="Another variant, to compare with.", autocompletion=completion.variant
    ),
]

# A benchmark of this repository as asv prints it: families.embedding.time_plan('...', '...').
_BENCHMARK = re.compile(r"(?:\w+\.)*(?P<family>\w+)\.\w+(?P<parameters>\(.*\))", re.DOTALL)
_FILE = re.compile(r"(?P<name>.+)#[0-9a-f]{8}")


def able_family(
    registry: Registry, name: str, ability: str, verb: str, workload: WorkloadSpec | None = None
) -> Family[Any, Any]:
    """Return the family called `name`; if it is empty, the only family with the ability.

    If several have the ability, the workload must be one of a single family. Raises UsageError for
    an unknown name, or if not exactly one family is left."""
    if name:
        return registry.find(name)
    able = [family for family in registry.families if getattr(family.abilities, ability)]
    if workload is not None and len(able) > 1:
        able = _knowing(able, workload)
    if len(able) != 1:
        names = ", ".join(family.name for family in able) or "none"
        raise UsageError(f"Name a family with --family; those that can {verb} are: {names}.")
    return able[0]


def _knowing(families: Sequence[Family[Any, Any]], workload: WorkloadSpec) -> list[Any]:
    """Return the families that take a workload; raise the error of one of them if none does."""
    knowing, errors = [], []
    for family in families:
        try:
            family.label(workload)
            knowing.append(family)
        except UsageError as error:
            errors.append(error)
    if not knowing:  # the error of a family with a similar name tells more
        raise next((error for error in errors if "did you mean" in str(error)), errors[0])
    return knowing


def placed_with_note(
    family: Family[Any, Any],
    workload: WorkloadSpec,
    topology: str | None,
    gpus: int | None,
) -> Topology:
    """Return the topology of a problem; warn if the last host has unused GPUs.

    Raises UsageError as `placed_on` does.
    """
    placed = placed_on(family, workload, topology, gpus)
    last = placed.gpus % placed.gpus_per_host
    if gpus is not None and last and placed.gpus_per_host % placed.gpus:
        left = placed.gpus_per_host - last
        warn(
            f"Hosts of {placed.name} have {placed.gpus_per_host} GPUs: {placed.gpus} leave {left} "
            "of a host unused."
        )
    return placed


def find_problem(
    registry: Registry,
    name: str,
    workload: str | None = None,
    topology: str | None = None,
    gpus: int | None = None,
) -> Request:
    """Return a request for the problem, and for the variant if any, in a command's arguments.

    `name` is `family` or `family/variant`, and the options give the problem; or `name` is an id,
    without options: `family/variant@workload/topology:gpus`, `family@workload/topology:gpus`, or a
    benchmark as asv prints it, with its parameters. Raises UsageError if `name` is malformed or
    unknown, or if the problem is given twice or not at all.
    """
    if "@" in name or "(" in name:
        if (workload, topology, gpus) != (None, None, None):
            raise UsageError(f"'{name}' names the problem already; leave out -w, -t and -n.")
        family, variant, problem = _of_id(registry, name)
        given = _as_given(family, problem.workload)
        topology, gpus = problem.topology, problem.gpus
    else:
        family_name, _, variant = name.partition("/")
        family = registry.find(family_name)
        if variant:
            family.find(variant)
        if workload is None:
            raise UsageError(
                "Name the problem with --workload, --topology and --gpus, or with one id for all, "
                f"{ID}."
            )
        given = WorkloadSpec.parse(workload)
    placed = placed_with_note(family, given, topology, gpus)
    return Request(family, given, placed, (variant,) if variant else ())


def _of_id(registry: Registry, name: str) -> tuple[Family[Any, Any], str, ProblemId]:
    if match := _BENCHMARK.fullmatch(name.strip()):
        return _of_benchmark(registry, name, match["family"], match["parameters"])
    family_name, _, problem = name.strip().partition("@")
    if "/" not in family_name and problem:
        return registry.find(family_name), "", ProblemId.parse(problem)
    cell = CellId.parse(name.strip())
    family = registry.find(cell.family)
    return family, family.find(cell.variant).name, cell.problem


def _of_benchmark(
    registry: Registry, name: str, identifier: str, parameters: str
) -> tuple[Family[Any, Any], str, ProblemId]:
    try:
        variant, problem = ast.literal_eval(parameters)
        problem = ProblemId.parse(problem)
    except (SyntaxError, ValueError, TypeError, AttributeError):
        raise UsageError(
            f"Benchmark '{name}' is malformed; write it as asv prints it, "
            "families.FAMILY.time_plan('VARIANT', 'WORKLOAD/TOPOLOGY:GPUS')."
        ) from None
    names = {re.sub(r"\W", "_", family.name): family.name for family in registry.families}
    family = registry.find(names.get(identifier, identifier))
    return family, family.find(variant).name, problem


def _as_given(family: Family[Any, Any], workload: WorkloadSpec) -> WorkloadSpec:
    """Return an id's workload as users give it: a file's name without the content hash.

    Raises UsageError if the file exists with other content."""
    match = _FILE.fullmatch(workload.name)
    if match is None or not Path(match["name"]).is_file():
        return workload
    given = WorkloadSpec(match["name"], workload.parameters)
    label = family.label(given)
    if label == given:
        return workload
    if label != workload:
        raise UsageError(f"{given.name} has changed: its name is now '{label}'.")
    return given
