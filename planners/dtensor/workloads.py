"""The workloads of the dtensor family, their parameters and their meshes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta

from harness.contract import (
    Parameters,
    Seed,
    Topology,
    UsageError,
    Workload,
    WorkloadSpec,
    read_file,
    read_parameters,
    unknown,
)

_OpName = Literal["addmm", "mm", "mul", "relu", "add-scalar", "view", "view-sharded", "t"]
OPS: tuple[_OpName, ...] = get_args(_OpName)
"""The single ops; `view` is of a replicated tensor, `view-sharded` keeps the sharded dimension."""

_Model = Literal["gpt2-xl", "deepseek-v2-lite"]

_Implementation = Literal["single", "foreach", "fused"]
OPTIMIZERS: tuple[str, ...] = get_args(_Implementation)
"""The implementations of torch's optimizers; `single` is a for-loop."""

MOST_GPUS = 256
ROUNDS = 20
"""Repetitions of each op in a call of `ops`, so that the work around them weighs little."""

OWN_STEP = "FILE.py:FUNCTION"
"""The name in listings of a user's own step."""

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
    Workload(
        "muon",
        f"one step of Muon over the matrices of model={', '.join(get_args(_Model))} (gpt2-xl) in "
        "small, layers=24; shard=0, 1 (0) is the sharded dimension; dims=2 to keep copies, as HSDP",
        "pytorch/torchtitan#2494, NVIDIA/Megatron-LM#5961",
    ),
    Workload(
        OWN_STEP,
        "your own training step: the function gets a mesh over all ranks and returns the step, a "
        "function without arguments; dims=1 to 4, caches=cold (warm) to clear them before a call",
        "a Python file of yours, whose code is run",
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


class MuonParameters(DynamicParameters, frozen=True):
    """The model, the number of its layers, and the dimension that is sharded."""

    model: _Model = "gpt2-xl"
    layers: Annotated[int, Meta(ge=1, le=200)] = 24
    shard: Annotated[int, Meta(ge=0, le=1)] = 0


class StepParameters(DynamicParameters, frozen=True):
    """The number of mesh dimensions, and warm or cold caches."""

    caches: Literal["warm", "cold"] = "warm"


_PARAMETERS: Mapping[str, type[Parameters]] = {
    "ops": OpsParameters,
    "mlp": DeviceParameters,
    "transformer-block": DeviceParameters,
    "miss": MissParameters,
    "dynamic": DynamicParameters,
    "optimizer": OptimizerParameters,
    "fsdp2-step": Fsdp2Parameters,
    "muon": MuonParameters,
    OWN_STEP: StepParameters,
}


def parameters_of(spec: WorkloadSpec) -> Any:
    """Return a workload's parameters; raises UsageError if the workload or a value is invalid."""
    name = OWN_STEP if function_of(spec) else spec.name
    if name not in _PARAMETERS:
        raise unknown("workload of family 'dtensor',", name, _PARAMETERS)
    return read_parameters(spec, _PARAMETERS[name])


def function_of(spec: WorkloadSpec) -> tuple[Path, str] | None:
    """Return the file and the function of a user's own step, None for other workloads."""
    path, _, function = spec.name.rpartition(":")
    return (Path(path), function) if path.endswith(".py") else None


def label(spec: WorkloadSpec) -> WorkloadSpec:
    """Return the workload under its name in results; raises UsageError if it is invalid.

    The name of a user's own step includes a hash of its file.
    """
    parameters_of(spec)
    own = function_of(spec)
    return spec if own is None else spec.of_file(read_file(own[0]))


def mesh_shape(topology: Topology, ndim: int) -> tuple[int, ...]:
    """Return the mesh shape of a topology in `ndim` dimensions; UsageError if there is none."""
    if topology.gpus > MOST_GPUS:
        raise UsageError(
            f"The dtensor family runs up to {MOST_GPUS} ranks in one process, not {topology.gpus}."
        )
    return topology.mesh_shape(ndim)
