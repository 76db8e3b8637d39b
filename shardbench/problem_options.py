"""Read the family, variant and problem of a command, from options or from an id."""

import ast
import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from harness.contract import Family
from harness.contract.registry import Registry
from harness.measuring.request import Request
from harness.model.errors import UnknownName, UsageError
from harness.model.ids import CellId, ProblemId, WorkloadSpec
from harness.topologies.lookup import placed_on
from shardbench import completion
from shardbench.options import found_registry

ID = "family/variant@workload/topology:gpus"

workload = click.option(
    "-w",
    "--workload",
    help="A name, name[key=value,...], or a file that its family reads.",
    shell_complete=completion.workloads,
)
topology = click.option(
    "-t",
    "--topology",
    help="A preset's name, or FILE.csv or FILE.csv#NAME; a captured workload has its own.",
    shell_complete=completion.topologies,
)
gpus = click.option(
    "-n", "--gpus", type=int, help="How many GPUs to plan for; a captured workload has its own."
)
cell = click.argument(
    "cell",
    help=f"FAMILY or FAMILY/VARIANT; or one id for all, {ID}, or a benchmark as asv prints it.",
    shell_complete=completion.cells,
)
family = click.option(
    "--family",
    default="",
    help="The family, if several can.",
    shell_complete=completion.families,
)
against = click.option(
    "--against",
    default="",
    help="Another variant, to compare with.",
    shell_complete=completion.variant,
)


def problem(function: Callable[..., None]) -> Callable[..., None]:
    """Add the argument and the options that name a problem; the function gets a request for it."""

    @wraps(function)
    def with_request(
        cell: str, workload: str | None, topology: str | None, gpus: int | None, **others: Any
    ) -> None:
        request = find_problem(found_registry(), cell, workload, topology, gpus)
        function(request=request, **others)

    for parameter in (gpus, topology, workload, cell):
        with_request = parameter(with_request)
    return with_request


# A benchmark of this repository as asv prints it: families.embedding.time_plan('...', '...').
_BENCHMARK = re.compile(r"(?:\w+\.)*(?P<family>\w+)\.\w+(?P<parameters>\(.*\))", re.DOTALL)
_FILE = re.compile(r"(?P<name>.+)#[0-9a-f]{8}")


def able_family(
    registry: Registry, name: str, ability: str, verb: str, workload: WorkloadSpec | None = None
) -> Family[Any, Any]:
    """Return the family called `name`; if it is empty, the only family with the ability.

    If several have the ability, the workload must be one of a single family. Raises UsageError for
    an unknown name, a family without the ability, or if not exactly one family is left."""
    families = [registry.find(name)] if name else registry.families
    able = [family for family in families if getattr(family.abilities, ability)]
    if name and not able:
        raise UsageError(f"Family '{name}' cannot {verb}.")
    if workload is not None and len(able) > 1:
        able = _taking(able, workload)
    if len(able) != 1:
        names = ", ".join(family.name for family in able) or "none"
        raise UsageError(f"Name a family with --family; those that can {verb} are: {names}.")
    return able[0]


def _taking(families: Sequence[Family[Any, Any]], workload: WorkloadSpec) -> list[Family[Any, Any]]:
    """Return the families that take a workload; raise the error of one of them if none does."""
    taking, errors = [], []
    for family in families:
        try:
            family.label(workload)
            family.brings(workload)  # raises if another family captured the file
            taking.append(family)
        except UsageError as error:
            errors.append(error)
    if taking:
        return taking
    # A file's defect tells more than an unknown name, and a similar name more than none.
    defects = [error for error in errors if not isinstance(error, UnknownName)]
    similar = [error for error in errors if "did you mean" in str(error)]
    if defects or similar:
        raise (*defects, *similar)[0]
    raise UnknownName(
        f"Unknown workload '{workload.name}'; 'shardbench list workloads' names those of each "
        "family."
    )


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
    placed = placed_on(family, given, topology, gpus)
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
