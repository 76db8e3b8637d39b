"""The workloads of the placement family: files of the IOPDDL contest, and generated models.

Listing them needs no NumPy.
"""

from typing import Annotated

from msgspec import Meta

from harness.contract import (
    CAPTURED_FILE,
    Parameters,
    Seed,
    Topology,
    Workload,
    WorkloadSpec,
    captured_topology,
    is_captured_file,
    labelled,
    workload_parameters,
)


class FileParameters(Parameters, frozen=True):
    """The parameter of a file: the seconds that a search may take."""

    seconds: Annotated[float, Meta(gt=0, le=86_400)] = 60.0


class BlocksParameters(Parameters, frozen=True):
    """Parameters of generated models: repeated blocks of ops, each op with its states."""

    blocks: Annotated[int, Meta(ge=1, le=2000)] = 8
    ops: Annotated[int, Meta(ge=4, le=200)] = 12
    states: Annotated[int, Meta(ge=2, le=64)] = 6
    spare: Annotated[float, Meta(ge=0, le=10)] = 0.1
    seed: Seed = 0
    seconds: Annotated[float, Meta(gt=0, le=86_400)] = 10.0


_KINDS: dict[str, type[Parameters]] = {CAPTURED_FILE: FileParameters, "blocks": BlocksParameters}

WORKLOADS = (
    Workload(
        "FILE.json.gz",
        "a problem of the IOPDDL contest: costs of nodes and edges, memory, lifetimes; searches "
        "take seconds=60",
        "google/iopddl, ASPLOS and EuroSys 2025",
    ),
    Workload(
        "blocks",
        "a model of blocks=8 with ops=12 each, up to states=6 shardings of an op, memory for "
        "spare=0.1 more than the least, seed=0; searches take seconds=10",
        "generated",
    ),
)


def label(spec: WorkloadSpec) -> WorkloadSpec:
    """Return the name in results, with a hash for a file; raises UsageError if it is unknown."""
    workload_parameters(spec, "placement", _KINDS)
    return labelled(spec)


def brings(spec: WorkloadSpec) -> Topology:
    """Return a topology, since a workload does not name the machines that its costs are for.

    Raises UsageError for a file of another kind.
    """
    workload_parameters(spec, "placement", _KINDS)
    if is_captured_file(spec.name):
        from planners.placement.files import check_is_problem  # imports NumPy

        check_is_problem(spec.name)
    return captured_topology(1, 1)
