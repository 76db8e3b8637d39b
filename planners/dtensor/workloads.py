"""The workloads of the dtensor family, their parameters and their meshes."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from harness.contract import (
    Topology,
    UsageError,
    Workload,
    WorkloadSpec,
    captured_topology,
    check_workload,
    is_captured_file,
    labelled,
    one_of,
)
from planners.dtensor.step_file import read_step

OPS = ("addmm", "mm", "mul", "relu", "add-scalar", "view", "view-sharded", "t")
"""The single ops; `view` is of a replicated tensor, `view-sharded` keeps the sharded dimension."""

OPTIMIZERS = ("single", "foreach", "fused")
"""The implementations of torch's optimizers; `single` is a for-loop."""

RULES = ("adamw", "sgd")
"""The optimizers; `sgd` is with momentum, and torch has no `fused` one for DTensors."""

MOST_GPUS = 256
MOST_DIMS = 4
ROUNDS = 20
"""How many times a call of `ops` repeats its ops, so that what is around them weighs little."""

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
        f"rule={', '.join(RULES)} (adamw), impl={', '.join(OPTIMIZERS)} (foreach), clip=norm "
        "(none) to clip the gradients before; lr=changing for another learning rate in each step",
        "pytorch/pytorch#109101, pytorch/pytorch#134191",
    ),
)

_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "ops": ("op", "dims"),
    "mlp": (),
    "transformer-block": (),
    "miss": ("op", "dims", "cases", "seed"),
    "dynamic": ("dims",),
    "optimizer": ("rule", "impl", "params", "clip", "dims", "lr"),
}


class DTensorParameters(NamedTuple):
    """The parameters of a workload, each with its default where it is not given.

    It runs `ops`, or so many random `cases`; `calls` is None for all calls of a captured step.
    """

    ops: tuple[str, ...]
    dims: int
    rule: str
    implementation: str
    params: int
    clips: bool
    cases: int
    seed: int
    calls: int | None
    is_cold: bool
    lr_changes: bool


def parameters_of(spec: WorkloadSpec) -> DTensorParameters:
    """Return the parameters of a workload; raises UsageError where it or one is unknown."""
    check_workload(spec, "dtensor", _ALLOWED, of_file=("calls", "caches"))

    def some_ops(text: str) -> tuple[str, ...]:
        return tuple(map(one_of(OPS), text.split("+")))

    found = DTensorParameters(
        ops=spec.get("op", some_ops, OPS, f"some of {', '.join(OPS)}, joined by +"),
        dims=spec.number("dims", 1, most=MOST_DIMS),
        rule=spec.choice("rule", RULES, "adamw"),
        implementation=spec.choice("impl", OPTIMIZERS, "foreach"),
        params=spec.number("params", 20, most=10_000),
        clips=spec.choice("clip", ("none", "norm"), "none") == "norm",
        cases=spec.number("cases", 0, most=10_000),
        seed=spec.number("seed", 0, least=0),
        calls=spec.number("calls", None),
        is_cold=spec.choice("caches", ("warm", "cold"), "warm") == "cold",
        lr_changes=spec.choice("lr", ("constant", "changing"), "constant") == "changing",
    )
    spec.check_apart("op", "cases")
    if (found.rule, found.implementation) == ("sgd", "fused"):
        raise UsageError(
            f"Parameter 'impl' of workload '{spec}' must be single or foreach with rule=sgd: torch "
            "has no fused one for DTensors."
        )
    if "seed" in spec.parameters and not found.cases:
        raise UsageError(
            f"Parameter 'seed' of workload '{spec}' must come with 'cases', how many to draw."
        )
    return found


def label(spec: WorkloadSpec) -> WorkloadSpec:
    """Return the workload as results name it; raises UsageError where there is no such one."""
    parameters_of(spec)
    return labelled(spec)


def brings(spec: WorkloadSpec) -> Topology | None:
    """Return a captured step's ranks, in hosts as torch counted them; UsageError for a bad file."""
    if not is_captured_file(spec.name):
        return None
    step = read_step(Path(spec.name))
    return captured_topology(step.ranks, step.ranks_per_host)


def mesh_shape(topology: Topology, ndim: int) -> tuple[int, ...]:
    """Return the mesh of a topology in `ndim` dimensions; raises UsageError where it makes none."""
    check_ranks(topology)
    return topology.mesh_shape(ndim)


def check_ranks(topology: Topology) -> None:
    """Raise UsageError where a topology has more GPUs than can be played."""
    if topology.gpus > MOST_GPUS:
        raise UsageError(
            f"The dtensor family runs up to {MOST_GPUS} ranks in one process, not {topology.gpus}."
        )
