"""The workloads of the dtensor family, their parameters and their meshes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

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
from planners.dtensor.step_file import read_step

_OpName = Literal["addmm", "mm", "mul", "relu", "add-scalar", "view", "view-sharded", "t"]
OPS: tuple[_OpName, ...] = get_args(_OpName)
"""The single ops; `view` is of a replicated tensor, `view-sharded` keeps the sharded dimension."""

_Implementation = Literal["single", "foreach", "fused"]
OPTIMIZERS: tuple[str, ...] = get_args(_Implementation)
"""The implementations of torch's optimizers; `single` is a for-loop."""

MOST_GPUS = 256
ROUNDS = 20
"""Repetitions of each op in a call of `ops`, so that the work around them weighs little."""

_SOURCE = "the benchmark of pytorch/pytorch#107305, widened"

WORKLOADS = (
    Workload(
        "ops",
        f"{', '.join(OPS)}, {ROUNDS} times each on the same shapes; op=mm+t for some of them, "
        "dims=1 to 4 for a mesh of more dimensions",
        _SOURCE,
    ),
    Workload(
        "mlp",
        "forward and backward of a tensor-parallel MLP, 16 features to 8 a rank to 16",
        _SOURCE,
    ),
    Workload(
        "transformer-block",
        "forward and backward of a tensor- and sequence-parallel transformer block",
        "torch's tensor-parallel plan (PrepareModuleInput, SequenceParallel)",
    ),
    Workload(
        "miss",
        "the ops, each for the first time: every cache is cold; op, dims as for ops; cases=N for N "
        "matrix and pointwise ops with placements drawn at random from seed=0",
        "pytorch/pytorch#169438",
    ),
    Workload(
        "dynamic",
        "relu(x @ w1) @ w2 with a batch size that was not seen before in every step; dims=1 to 4",
        "pytorch/pytorch#150582",
    ),
    Workload(
        "optimizer",
        "one step over params=20 parameters of mixed shapes, most in shards and some replicated; "
        f"rule=adamw, sgd (adamw), impl={', '.join(OPTIMIZERS)} (foreach), clip=norm "
        "(none) to clip the gradients before; lr=changing for another learning rate in each step",
        "pytorch/pytorch#109101, pytorch/pytorch#134191",
    ),
    Workload(
        "fsdp2-step",
        "a training step of a transformer under fully_shard: forward, backward, clipping, AdamW; "
        f"layers=24 blocks of 12 parameters, impl={', '.join(OPTIMIZERS)} (foreach)",
        "pytorch/pytorch#173680, NVIDIA/Megatron-LM#7264",
    ),
)

_OpNames = Annotated[tuple[_OpName, ...], Meta(extra={"separator": "+"})]
_Dims = Annotated[int, Meta(ge=1, le=4)]
_Count = Annotated[int, Meta(ge=1, le=10_000)]


class DeviceParameters(Parameters, frozen=True):
    """The device of the local tensors; other devices than the CPU need a GPU."""

    device: Literal["cpu", "cuda"] = "cpu"


class DynamicParameters(DeviceParameters, frozen=True):
    """The number of mesh dimensions."""

    dims: _Dims = 1


class OpsParameters(DynamicParameters, frozen=True):
    """The ops to run, and the number of mesh dimensions."""

    op: _OpNames = OPS


class MissParameters(DynamicParameters, frozen=True):
    """The ops to run, or the number and seed of random cases; also the mesh dimensions."""

    op: _OpNames | None = None
    cases: _Count | None = None
    seed: Seed | None = None

    def __post_init__(self) -> None:
        if self.op and self.cases:
            raise ValueError("'op' and 'cases' exclude each other")
        if self.seed is not None and not self.cases:
            raise ValueError("'seed' must come with 'cases', the number of cases to draw")


class OptimizerParameters(DynamicParameters, frozen=True):
    """The optimizer and its implementation, number of weights, clipping and learning rate."""

    rule: Literal["adamw", "sgd"] = "adamw"  # sgd has momentum
    impl: _Implementation = "foreach"
    params: _Count = 20
    clip: Literal["none", "norm"] = "none"
    lr: Literal["constant", "changing"] = "constant"

    def __post_init__(self) -> None:
        if (self.rule, self.impl) == ("sgd", "fused"):
            raise ValueError(
                "'impl' must be single or foreach with rule=sgd, since torch has no fused sgd for "
                "DTensors"
            )


class Fsdp2Parameters(DeviceParameters, frozen=True):
    """The number of blocks, and the implementation of the optimizer."""

    layers: Annotated[int, Meta(ge=1, le=200)] = 24
    impl: _Implementation = "foreach"


class StepParameters(Parameters, frozen=True):
    """The number of a captured step's calls to replay (None: all), and warm or cold caches."""

    calls: Count | None = None
    caches: Literal["warm", "cold"] = "warm"


_PARAMETERS: Mapping[str, type[Parameters]] = {
    "ops": OpsParameters,
    "mlp": DeviceParameters,
    "transformer-block": DeviceParameters,
    "miss": MissParameters,
    "dynamic": DynamicParameters,
    "optimizer": OptimizerParameters,
    "fsdp2-step": Fsdp2Parameters,
    CAPTURED_FILE: StepParameters,
}


def parameters_of(spec: WorkloadSpec) -> Any:
    """Return a workload's parameters; raises UsageError if the workload or a value is invalid."""
    return workload_parameters(spec, "dtensor", _PARAMETERS)


def label(spec: WorkloadSpec) -> WorkloadSpec:
    """Return the workload under its name in results; raises UsageError if it is invalid."""
    parameters_of(spec)
    return labelled(spec)


def brings(spec: WorkloadSpec) -> Topology | None:
    """Return the topology of a captured step, else None; raises UsageError for a bad file.

    Its hosts have as many ranks as torch counted when it recorded the step.
    """
    if not is_captured_file(spec.name):
        return None
    step = read_step(Path(spec.name))
    return captured_topology(step.ranks, step.ranks_per_host)


def mesh_shape(topology: Topology, ndim: int) -> tuple[int, ...]:
    """Return the mesh shape of a topology in `ndim` dimensions; UsageError if there is none."""
    check_ranks(topology)
    return topology.mesh_shape(ndim)


def check_ranks(topology: Topology) -> None:
    """Raise UsageError if a topology has more than MOST_GPUS, the most ranks in one process."""
    if topology.gpus > MOST_GPUS:
        raise UsageError(
            f"The dtensor family runs up to {MOST_GPUS} ranks in one process, not {topology.gpus}."
        )
