"""The workloads of the dimspec family: which conversions are asked for, on which mesh."""

import math
from collections.abc import Mapping
from pathlib import Path

from harness.contract import (
    Topology,
    UsageError,
    Workload,
    WorkloadSpec,
    at_most,
    captured_topology,
    check_workload,
    is_captured_file,
    labelled,
)
from planners.dimspec.conversion.partition import MOST_MESH_AXES
from planners.dimspec.stream_file import read_mesh

MOST_RANK = 6
MOST_CONVERSIONS = 1_000_000
MOST_SIZE = 2**31
_SIZE = 64
_DEFAULT_RANK = 4

RECORDED = {"resnet50": "resnet50_2x2.json.gz", "gpt12": "gpt12_2x2.json.gz"}
"""Recorded streams that come with the family, by workload; README.md beside them says whence."""

MODELS = ("resnet50", "gpt12", "resnet-tiny", "mlp2")
"""The models whose strategies ColossalAI's own constructor makes."""

CONSTRUCTOR = "constructor"
_DATA = Path(__file__).parent / "data"
_MOST_DEVICES = 2**17
_OWN_MESHES = "on meshes of its own, whatever the topology"

WORKLOADS = (
    Workload(
        "all-pairs",
        f"every conversion between the specs of a tensor; rank={_DEFAULT_RANK} with {_SIZE} in "
        "each dimension, or shape=8x12x128x64; mesh=2x4, or dims=2 of the topology's mesh",
        "hpcaitech/ColossalAI#5436",
    ),
    Workload(
        "all-pairs-batch",
        f"all pairs of four tensors, with unit costs and with costs in seconds, {_OWN_MESHES}",
        "made up: tensors of ResNet-50 and of attention",
    ),
    Workload(
        "random",
        f"conversions=1000 of tensors of rank 1 to {MOST_RANK}, drawn from seed=0, {_OWN_MESHES}",
        "random.Random(seed)",
    ),
    *(
        Workload(
            name,
            f"what ColossalAI asks while it makes the strategies of {model}, {calls} conversions; "
            "calls=N for the first N, mesh=4x2 for another mesh",
            "recorded from ColossalAI 0.4.1 on mesh 2x2",
        )
        for name, model, calls in (
            ("resnet50", "ResNet-50", "39,737"),
            ("gpt12", "a GPT of 12 layers", "96,145"),
        )
    ),
    Workload(
        CONSTRUCTOR,
        f"ColossalAI's own strategy constructor on model={', '.join(MODELS)} (resnet50); mesh=2x2, "
        "or dims=2 of the topology's mesh",
        "hpcaitech/ColossalAI#5446",
    ),
)

_OF_STREAM = ("calls", "mesh")
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "all-pairs": ("rank", "shape", "mesh", "dims"),
    "all-pairs-batch": (),
    "random": ("conversions", "seed"),
    **dict.fromkeys(RECORDED, _OF_STREAM),
    CONSTRUCTOR: ("model", "mesh", "dims"),
}


def label(spec: WorkloadSpec) -> WorkloadSpec:
    """Return the workload as results name it; raises UsageError where there is no such one."""
    return labelled(checked(spec))


def brings(spec: WorkloadSpec) -> Topology | None:
    """Return the GPUs of a file's mesh, the last axis within a host; UsageError for a bad file."""
    if not is_captured_file(spec.name):
        return None
    mesh = asked_mesh(spec) or read_mesh(Path(spec.name)).shape
    devices = math.prod(mesh)
    return captured_topology(devices, mesh[-1]) if devices <= _MOST_DEVICES else None


def checked(spec: WorkloadSpec) -> WorkloadSpec:
    """Return a workload as it is; raises UsageError where it or a parameter is unknown."""
    check_workload(spec, "dimspec", _PARAMETERS, _OF_STREAM)
    for parameter in (shape, asked_mesh, calls, random_conversions, model):
        parameter(spec)
    return spec


def stream_path(spec: WorkloadSpec) -> Path | None:
    """Return the file that a workload's stream is in, None where it is made instead."""
    if is_captured_file(spec.name):
        return Path(spec.name)
    return _DATA / RECORDED[spec.name] if spec.name in RECORDED else None


def shape(spec: WorkloadSpec) -> tuple[int, ...]:
    """Return the shape of the tensor of `all-pairs`, in elements."""
    spec.check_apart("rank", "shape")
    rank = spec.number("rank", _DEFAULT_RANK, most=MOST_RANK)
    return _sizes(spec, "shape", MOST_RANK, "8x12x128x64") or (_SIZE,) * rank


def asked_mesh(spec: WorkloadSpec) -> tuple[int, ...] | None:
    """Return the mesh that a workload asks for, None where it leaves that to others."""
    spec.check_apart("mesh", "dims")
    _dims(spec)
    return _sizes(spec, "mesh", MOST_MESH_AXES, "2x4")


def mesh_shape(
    spec: WorkloadSpec, topology: Topology | None, recorded: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """Return the mesh of a workload: the one it asks for, or was recorded on, or the topology's.

    Raises UsageError where that has not as many devices as the topology, or nothing says which.
    """
    asked = asked_mesh(spec)
    if topology is None:
        if not recorded:
            raise UsageError(
                f"The mesh of workload '{spec}' depends on the machines; name them with --topology "
                "and --gpus."
            )
        return asked or recorded
    if asked is None:
        if recorded and math.prod(recorded) == topology.gpus:
            return recorded
        return topology.mesh_shape(len(recorded) or _dims(spec))
    devices = math.prod(asked)
    if devices != topology.gpus:
        raise UsageError(
            f"The mesh of workload '{spec}' takes {devices} GPUs, not {topology.gpus}: "
            f"ask for so many (-n {devices})."
        )
    return asked


def calls(spec: WorkloadSpec) -> int | None:
    """Return how many calls of a stream are made, None for all."""
    return spec.number("calls", None)


def random_conversions(spec: WorkloadSpec) -> tuple[int, int]:
    """Return how many conversions `random` draws, and the seed."""
    return spec.number("conversions", 1000, most=MOST_CONVERSIONS), spec.number("seed", 0, least=0)


def model(spec: WorkloadSpec) -> str:
    """Return which model the constructor gets."""
    return spec.choice("model", MODELS, MODELS[0])


def _dims(spec: WorkloadSpec) -> int:
    """Return how many dimensions of the topology's mesh it takes."""
    return spec.number("dims", 2, most=MOST_MESH_AXES)


def _sizes(spec: WorkloadSpec, name: str, most: int, example: str) -> tuple[int, ...] | None:
    def convert(text: str) -> tuple[int, ...]:
        sizes = tuple(map(at_most(MOST_SIZE), text.split("x")))
        if len(sizes) > most:
            raise ValueError(text)
        return sizes

    allowed = f"1 to {most} sizes up to 2^31 with x between, e.g. {example}"
    return spec.get(name, convert, None, allowed)
