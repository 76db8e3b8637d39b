"""The workloads of the reshard family: which program is resharded, or edited, and where."""

from collections.abc import Mapping

from harness.contract import Topology, UsageError, Workload, WorkloadSpec

PADDLE = "paddle"
MOST_LAYERS = 256
MOST_OPS = 100_000

WORKLOADS = (
    Workload(
        "transformer",
        "a stack of layers=4 decoder blocks, forward, backward and optimizer, in a "
        "sequence-parallel Megatron layout; hosts are pipeline stages and their GPUs "
        "tensor-parallel; stage=0 is the one whose program is made",
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

_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "transformer": ("layers", "stage"),
    PADDLE: ("layers", "stage"),
    "micro": ("ops", "inserts", "seed"),
}


def checked(spec: WorkloadSpec) -> WorkloadSpec:
    """Return a workload as it is; raises UsageError where it or a parameter is unknown."""
    spec.check_known("reshard", _PARAMETERS)
    for parameter in (layers, stage, chain):
        parameter(spec)
    return spec


def layers(spec: WorkloadSpec) -> int:
    """Return how many decoder blocks there are."""
    return spec.number("layers", 4, most=MOST_LAYERS)


def stage(spec: WorkloadSpec) -> int:
    """Return the stage whose program is made."""
    return spec.number("stage", 0, least=0)


def chain(spec: WorkloadSpec) -> tuple[int, int, int]:
    """Return the ops of `micro`, how many are inserted, and the seed of their places."""
    ops, inserts = spec.number("ops", 1000, most=MOST_OPS), spec.number("inserts", 100)
    if inserts > ops:
        raise UsageError(
            f"Parameter 'inserts' of workload '{spec}' must be at most {ops}, as many as it has "
            f"ops, not {inserts}."
        )
    return ops, inserts, spec.number("seed", 0, least=0)


def parallelism(spec: WorkloadSpec, topology: Topology) -> tuple[int, int]:
    """Return pipeline stages and tensor-parallel ranks: hosts, and the GPUs of each.

    Raises UsageError where there are too few GPUs for two of both, fewer layers than stages, or no
    such stage.
    """
    stages, ranks = topology.mesh_shape(2)
    if layers(spec) < stages:
        raise UsageError(
            f"Workload '{spec}' has fewer layers than the {stages} pipeline stages of "
            f"{topology.name} with {topology.gpus} GPUs; ask for at least as many."
        )
    if stage(spec) >= stages:
        raise UsageError(
            f"Parameter 'stage' of workload '{spec}' must be below {stages}, the pipeline stages "
            f"of {topology.name} with {topology.gpus} GPUs, not {stage(spec)}."
        )
    return stages, ranks
