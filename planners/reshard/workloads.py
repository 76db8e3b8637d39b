"""The workloads of the reshard family, and their parameters."""

from typing import Annotated

from msgspec import Meta

from harness.contract import (
    Count,
    Parameters,
    Seed,
    Topology,
    UsageError,
    Workload,
    WorkloadSpec,
    workload_parameters,
)

PADDLE = "paddle"

WORKLOADS = (
    Workload(
        "transformer",
        "a stack of layers=4 decoder blocks, forward, backward and optimizer, in a "
        "sequence-parallel Megatron layout; hosts are pipeline stages and their GPUs "
        "tensor-parallel; stage=0 is the stage to reshard for",
        "PaddlePaddle/Paddle#60022, with shapes of its own",
    ),
    Workload(
        PADDLE,
        "a stack of layers=4 decoder blocks as Paddle's own program, resharded by Paddle for the "
        "first rank of stage=0; for the variants that are named after it",
        "test_auto_parallel_reshard_dpmppp.py of PaddlePaddle/Paddle, with another model",
    ),
    Workload(
        "micro",
        "a chain of ops=1000 into which inserts=100 are put, at places drawn from seed=0, whatever "
        "the topology",
        "PaddlePaddle/Paddle#60022, without the resharding",
    ),
)


class LayersParameters(Parameters, frozen=True):
    """Parameters of `transformer` and `paddle`: decoder blocks, and the stage to reshard for."""

    layers: Annotated[int, Meta(ge=1, le=256)] = 4
    stage: Annotated[int, Meta(ge=0)] = 0


class MicroParameters(Parameters, frozen=True):
    """Parameters of `micro`: ops in the chain, ops to insert, and the seed of their positions."""

    ops: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    inserts: Count = 100
    seed: Seed = 0

    def __post_init__(self) -> None:
        if self.inserts > self.ops:
            raise ValueError(
                f"'inserts' must be at most {self.ops}, the number of its ops, not {self.inserts}"
            )


def parameters_of(spec: WorkloadSpec) -> LayersParameters | MicroParameters:
    """Return a workload's parameters; raises UsageError if the name or a parameter is unknown."""
    types: dict[str, type[LayersParameters | MicroParameters]] = {
        "transformer": LayersParameters,
        PADDLE: LayersParameters,
        "micro": MicroParameters,
    }
    return workload_parameters(spec, "reshard", types)


def label(spec: WorkloadSpec) -> WorkloadSpec:
    """Return `spec` unchanged; raises UsageError if the workload or a parameter is unknown."""
    parameters_of(spec)
    return spec


def parallelism(
    spec: WorkloadSpec, parameters: LayersParameters, topology: Topology
) -> tuple[int, int]:
    """Return the numbers of pipeline stages and of tensor-parallel ranks in each stage.

    Raises UsageError if there are too few GPUs, fewer layers than stages, or no such stage.
    """
    stages, ranks = topology.mesh_shape(2)
    if parameters.layers < stages:
        raise UsageError(
            f"Workload '{spec}' has fewer layers than the {stages} pipeline stages of "
            f"{topology.name} with {topology.gpus} GPUs; ask for at least as many."
        )
    if parameters.stage >= stages:
        raise UsageError(
            f"Parameter 'stage' of workload '{spec}' must be below {stages}, the pipeline stages "
            f"of {topology.name} with {topology.gpus} GPUs, not {parameters.stage}."
        )
    return stages, ranks
