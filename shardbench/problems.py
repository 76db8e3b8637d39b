"""The family, the variant and the problem that a command line names."""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from harness.contract import Family, read_machine
from harness.contract.abilities import load
from harness.contract.registry import Registry
from harness.measuring.request import Request
from harness.model.errors import UnknownName, UsageError, unknown
from harness.model.ids import CellId, ProblemId, WorkloadSpec
from harness.model.topology import Topology
from harness.topologies.lookup import find_gpu_kind, placed_on
from shardbench import completion, options

ID = "family/variant@workload/topology:gpus"

cell = click.argument(
    "cell",
    help=f"FAMILY or FAMILY/VARIANT; or one id for all, {ID}, or a benchmark as asv prints it.",
    shell_complete=completion.cells,
)


# A benchmark of this repository as asv prints it: families.embedding.time_plan('...', '...').
_BENCHMARK = re.compile(r"(?:\w+\.)*(?P<family>\w+)\.\w+(?P<parameters>\(.*\))", re.DOTALL)
_FILE = re.compile(r"(?P<name>.+)#[0-9a-f]{8}")


def problem(function: Callable[..., None]) -> Callable[..., None]:
    """Add the argument and the options that name a problem; the function gets a request for it."""

    @wraps(function)
    def with_request(
        cell: str,
        workload: str | None,
        topology: str | None,
        gpus: int | None,
        machine: str,
        **others: Any,
    ) -> None:
        request = find_problem(options.found_registry(), cell, workload, topology, gpus)
        placed = judged(request.family, request.topology, machine)
        function(request=replace(request, topology=placed), **others)

    for parameter in (options.judge, options.gpus, options.topology, options.workload, cell):
        with_request = parameter(with_request)
    return with_request


def judged(family: Family[Any, Any], topology: Topology, machine: str) -> Topology:
    """Return a topology with the calibrated machine of this name or file, or with its GPU's.

    For "none" the topology is as it is. Raises UsageError if two machines are named, or if the
    family has no estimate that a machine calibrates.
    """
    devices: Mapping[str, str] = load(family.abilities.machines or dict)()
    if machine and (topology.machine or not family.abilities.machines):
        why = "the topology names one" if topology.machine else f"family '{family.name}' takes none"
        raise UsageError(f"--machine {machine} is one too many: {why}.")
    if topology.machine or machine == "none":
        return topology
    if machine.endswith(".toml"):
        read_machine(machine)
    elif machine and machine not in devices:
        raise unknown("machine", machine, devices)
    gpu = find_gpu_kind(topology.gpu)
    known = (name for name, device in devices.items() if gpu and find_gpu_kind(device) == gpu)
    return topology.judged_by(machine or next(known, ""))


def elsewhere(family: Family[Any, Any], machine: str, here: str) -> str:
    """Return a sentence if a machine was calibrated on another device than `here`, else ""."""
    if not machine:
        return ""
    devices: Mapping[str, str] = load(family.abilities.machines or dict)()
    device = devices[machine] if machine in devices else read_machine(machine).device
    if device == here:
        return ""
    name = Path(machine).name
    return f"{name} was calibrated on {device}, and this is {here}: its estimates do not apply."


def able_family(
    registry: Registry, name: str, ability: str, verb: str, workload: WorkloadSpec | None = None
) -> Family[Any, Any]:
    """Return the family called `name`, or else the only family with the ability.

    If several have the ability, the workload must be one of a single family. Raises UsageError for
    an unknown name, a family without the ability, or if not exactly one family is left.
    """
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
    """Return the families that take a workload; raises UsageError if there is none."""
    taking, defects = [], []
    known: set[str] = set()
    for family in families:
        names = {listed.name for listed in family.workloads()}
        known |= names
        try:
            family.label(workload)
            family.brings(workload)  # raises if another family captured the file
            taking.append(family)
        except UsageError as error:
            if workload.name in names or not isinstance(error, UnknownName):
                defects.append(error)
    if not taking:
        raise defects[0] if defects else unknown("workload", workload.name, known)
    return taking


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
        family, variant, problem = _of_id(registry, name.strip())
        given = _as_given(family, problem.workload)
        topology, gpus = problem.topology, problem.gpus
    else:
        family_name, _, variant = name.partition("/")
        family = registry.find(family_name)
        if workload is None:
            raise UsageError(
                "Name the problem with --workload, --topology and --gpus, or with one id for all, "
                f"{ID}."
            )
        given = WorkloadSpec.parse(workload)
    variants = (family.find(variant).name,) if variant else ()
    return Request(family, given, placed_on(family, given, topology, gpus), variants)


def _of_id(registry: Registry, name: str) -> tuple[Family[Any, Any], str, ProblemId]:
    """Return the family, the variant, which may be empty, and the problem of an id."""
    if match := _BENCHMARK.fullmatch(name):
        names = {re.sub(r"\W", "_", family.name): family.name for family in registry.families}
        family = registry.find(names.get(match["family"], match["family"]))
        try:
            variant, problem = ast.literal_eval(match["parameters"])
            return family, variant, ProblemId.parse(problem)
        except (SyntaxError, ValueError, TypeError, AttributeError):
            raise UsageError(
                f"Benchmark '{name}' is malformed; write it as asv prints it, "
                "families.FAMILY.time_plan('VARIANT', 'WORKLOAD/TOPOLOGY:GPUS')."
            ) from None
    family_name, _, text = name.partition("@")
    if "/" not in family_name and text:
        return registry.find(family_name), "", ProblemId.parse(text)
    cell = CellId.parse(name)
    return registry.find(cell.family), cell.variant, cell.problem


def _as_given(family: Family[Any, Any], workload: WorkloadSpec) -> WorkloadSpec:
    """Return an id's workload as users give it: a file's name without the content hash.

    Raises UsageError if the file exists with other content.
    """
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
