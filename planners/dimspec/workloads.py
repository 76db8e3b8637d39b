"""The workloads of the dimspec family: their parameters, files and meshes."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args

from msgspec import Meta

from harness.contract import (
    CAPTURED_FILE,
    Count,
    Parameters,
    Seed,
    Topology,
    UsageError,
    Workload,
    WorkloadSpec,
    captured_topology,
    is_captured_file,
    labelled,
    workload_parameters,
)
from planners.dimspec.conversion.partition import MOST_MESH_AXES
from planners.dimspec.stream_file import Size, read_mesh

MOST_CONVERSIONS = 1_000_000
_MOST_RANK = 6
SIZE = 64
DEFAULT_RANK = 4
_MOST_DEVICES = 2**17

RECORDED = {"resnet50": "resnet50_2x2.json.gz", "gpt12": "gpt12_2x2.json.gz"}
"""Recorded streams that come with the family, by workload; data/README.md names their source."""

Model = Literal["resnet50", "gpt12", "resnet-tiny", "mlp2"]
MODELS: tuple[str, ...] = get_args(Model)
"""The models for ColossalAI's own strategy constructor."""

_DATA = Path(__file__).parent / "data"
_OWN_MESHES = "on meshes of its own, whatever the topology"

WORKLOADS = (
    Workload(
        "all-pairs",
        f"every conversion between the specs of a tensor; rank={DEFAULT_RANK} with {SIZE} in "
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
        f"conversions=1000 of tensors of rank 1 to {_MOST_RANK}, drawn from seed=0, {_OWN_MESHES}",
        "random.Random(seed)",
    ),
    *(
        Workload(
            name,
            f"the {calls} conversions that ColossalAI makes for the strategies of {model}; "
            "calls=N for the first N, mesh=4x2 for another mesh",
            "recorded from ColossalAI 0.4.1 on mesh 2x2",
        )
        for name, model, calls in (
            ("resnet50", "ResNet-50", "39,737"),
            ("gpt12", "a GPT of 12 layers", "96,145"),
        )
    ),
    Workload(
        "constructor",
        f"ColossalAI's own strategy constructor on model={', '.join(MODELS)} (resnet50); mesh=2x2, "
        "or dims=2 of the topology's mesh",
        "hpcaitech/ColossalAI#5446",
    ),
)

_BY_X = {"separator": "x"}
_Shape = Annotated[tuple[Size, ...], Meta(max_length=_MOST_RANK, extra=_BY_X)]
_Mesh = Annotated[tuple[Size, ...], Meta(max_length=MOST_MESH_AXES, extra=_BY_X)]


class StreamParameters(Parameters, frozen=True):
    """Parameters of recorded streams: the number of calls (None: all), and a mesh to use."""

    calls: Count | None = None
    mesh: _Mesh | None = None


class MeshParameters(Parameters, frozen=True):
    """A mesh shape, or the number of axes into which the topology's GPUs are arranged."""

    mesh: _Mesh | None = None
    dims: Annotated[int, Meta(ge=1, le=MOST_MESH_AXES)] | None = None

    def __post_init__(self) -> None:
        if self.mesh and self.dims:
            raise ValueError("'mesh' and 'dims' exclude each other")


class AllPairsParameters(MeshParameters, frozen=True):
    """The mesh, and the tensor's shape (elements) or its rank, with SIZE in each dimension."""

    rank: Annotated[int, Meta(ge=1, le=_MOST_RANK)] | None = None
    shape: _Shape | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank and self.shape:
            raise ValueError("'rank' and 'shape' exclude each other")


class RandomParameters(Parameters, frozen=True):
    """The number of random conversions, and their seed."""

    conversions: Annotated[int, Meta(ge=1, le=MOST_CONVERSIONS)] = 1000
    seed: Seed = 0


class ConstructorParameters(MeshParameters, frozen=True):
    """The mesh, and the model to build strategies for with ColossalAI's constructor."""

    model: Model = "resnet50"


_PARAMETERS: Mapping[str, type[Parameters]] = {
    "all-pairs": AllPairsParameters,
    "all-pairs-batch": Parameters,
    "random": RandomParameters,
    **dict.fromkeys(RECORDED, StreamParameters),
    "constructor": ConstructorParameters,
    CAPTURED_FILE: StreamParameters,
}


def parameters_of(spec: WorkloadSpec) -> Parameters:
    """Return a workload's parameters; raises UsageError if the name or a parameter is unknown."""
    return workload_parameters(spec, "dimspec", _PARAMETERS)


def label(spec: WorkloadSpec) -> WorkloadSpec:
    """Return `spec` with its name for results; raises UsageError if the workload is unknown."""
    parameters_of(spec)
    return labelled(spec)


def brings(spec: WorkloadSpec) -> Topology | None:
    """Return a topology for the mesh of a captured file; the last mesh axis is within a host.

    Returns None for other workloads and for meshes of more than 2^17 devices. Raises UsageError for
    an invalid file."""
    asked = parameters_of(spec) if is_captured_file(spec.name) else None
    if not isinstance(asked, StreamParameters):
        return None
    mesh = asked.mesh or read_mesh(Path(spec.name)).shape
    devices = math.prod(mesh)
    return captured_topology(devices, mesh[-1]) if devices <= _MOST_DEVICES else None


def stream_path(spec: WorkloadSpec) -> Path:
    """Return the path of the file with a workload's recorded stream."""
    return Path(spec.name) if is_captured_file(spec.name) else _DATA / RECORDED[spec.name]


def mesh_shape(
    spec: WorkloadSpec,
    asked: StreamParameters | MeshParameters,
    topology: Topology | None,
    recorded: tuple[int, ...] = (),
) -> tuple[int, ...]:
    """Return the mesh shape of a workload: of its parameters, else recorded, else the topology's.

    A recorded shape is used only if it has as many devices as the topology. Raises UsageError if
    the parameters' shape has not, or if there is neither a topology nor a recorded shape.
    """
    mesh = asked.mesh
    if topology is None:
        if not recorded:
            raise UsageError(
                f"The mesh of workload '{spec}' depends on the machines; name them with --topology "
                "and --gpus."
            )
        return mesh or recorded
    if mesh is None:
        if isinstance(asked, MeshParameters):
            return topology.mesh_shape(asked.dims or 2)
        if math.prod(recorded) == topology.gpus:
            return recorded
        return topology.mesh_shape(len(recorded))
    devices = math.prod(mesh)
    if devices != topology.gpus:
        raise UsageError(
            f"The mesh of workload '{spec}' takes {devices} GPUs, not {topology.gpus}: "
            f"ask for {devices} (-n {devices})."
        )
    return mesh
