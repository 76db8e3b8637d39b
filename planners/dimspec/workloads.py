"""The workloads of the dimspec family: their parameters and meshes."""

import math
from typing import Annotated, Literal, get_args

from msgspec import Meta

from harness.contract import (
    Count,
    Parameters,
    Seed,
    Topology,
    UsageError,
    Workload,
    WorkloadSpec,
    require_topology,
    workload_parameters,
)

MOST_CONVERSIONS = 1_000_000
_MOST_RANK = 6
_MOST_MESH_AXES = 4  # more would make too many layouts

Model = Literal["resnet50", "gpt12", "mlp2"]
MODELS: tuple[str, ...] = get_args(Model)
"""The models for ColossalAI's own strategy constructor."""

_OWN_MESHES = "on meshes of its own, whatever the topology"
_RECORDED = (
    "the {} conversions that ColossalAI makes for the strategies of {}, or the first calls=N of "
    "them, on mesh 2x2, whatever the topology"
)
_RECORDED_FROM = "recorded from ColossalAI 0.4.1"

WORKLOADS = (
    Workload(
        "all-pairs",
        "every conversion between the specs of a tensor; rank=4 with 64 in each dimension, or "
        "shape=8x12x128x64; mesh=2x4, or the topology's mesh of two axes",
        "hpcaitech/ColossalAI#5436",
    ),
    Workload(
        "all-pairs-batch",
        f"all pairs of four tensors, with unit costs and with costs in seconds, {_OWN_MESHES}",
        "made up: tensors of ResNet-50 and of attention",
    ),
    Workload(
        "random",
        f"conversions=1000 of tensors of rank 1 to {_MOST_RANK}, drawn from seed=0, {_OWN_MESHES}",
        "random.Random(seed)",
    ),
    Workload("resnet50", _RECORDED.format("39,737", "ResNet-50"), _RECORDED_FROM),
    Workload("gpt12", _RECORDED.format("96,145", "a GPT of 12 layers"), _RECORDED_FROM),
    Workload(
        "constructor",
        f"ColossalAI's own strategy constructor on model={', '.join(MODELS)} (resnet50); mesh=2x2, "
        "or the topology's mesh of two axes",
        "hpcaitech/ColossalAI#5446",
    ),
)

_Size = Annotated[int, Meta(ge=1, le=2**31)]
_BY_X = {"separator": "x"}
_Shape = Annotated[tuple[_Size, ...], Meta(max_length=_MOST_RANK, extra=_BY_X)]
_Mesh = Annotated[tuple[_Size, ...], Meta(max_length=_MOST_MESH_AXES, extra=_BY_X)]


class RecordedParameters(Parameters, frozen=True):
    """The number of calls of a recorded stream, from the first one; None is all."""

    calls: Count | None = None


class RandomParameters(Parameters, frozen=True):
    """The number of random conversions, and their seed."""

    conversions: Annotated[int, Meta(ge=1, le=MOST_CONVERSIONS)] = 1000
    seed: Seed = 0


class MeshParameters(Parameters, frozen=True):
    """The mesh shape; None is the topology's, of two axes."""

    mesh: _Mesh | None = None


class AllPairsParameters(MeshParameters, frozen=True):
    """The mesh, and the tensor's shape (elements) or its rank, with 64 in each dimension."""

    rank: Annotated[int, Meta(ge=1, le=_MOST_RANK)] | None = None
    shape: _Shape | None = None

    def __post_init__(self) -> None:
        if self.rank and self.shape:
            raise ValueError("'rank' and 'shape' exclude each other")


class ConstructorParameters(MeshParameters, frozen=True):
    """The mesh, and the model to build strategies for with ColossalAI's constructor."""

    model: Model = "resnet50"


_PARAMETERS: dict[str, type[Parameters]] = {
    "all-pairs": AllPairsParameters,
    "all-pairs-batch": Parameters,
    "random": RandomParameters,
    "resnet50": RecordedParameters,
    "gpt12": RecordedParameters,
    "constructor": ConstructorParameters,
}


def parameters_of(spec: WorkloadSpec) -> Parameters:
    """Return a workload's parameters; raises UsageError if the name or a parameter is unknown."""
    return workload_parameters(spec, "dimspec", _PARAMETERS)


def label(spec: WorkloadSpec) -> WorkloadSpec:
    """Return `spec`; raises UsageError if the workload is unknown."""
    parameters_of(spec)
    return spec


def mesh_shape(
    spec: WorkloadSpec, mesh: tuple[int, ...] | None, topology: Topology | None
) -> tuple[int, ...]:
    """Return `mesh`, the mesh shape that a workload asks for, or else the topology's.

    Raises UsageError if `mesh` has another number of devices than the topology, or if both are
    None.
    """
    if mesh is None:
        return require_topology(spec, topology).mesh_shape(2)
    devices = math.prod(mesh)
    if topology is not None and devices != topology.gpus:
        raise UsageError(
            f"The mesh of workload '{spec}' takes {devices} GPUs, not {topology.gpus}: "
            f"ask for {devices} (-n {devices})."
        )
    return mesh
