"""Build the programs of the workloads; every variant runs these programs."""

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import count, cycle, islice
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from harness.contract import Topology, WorkloadSpec
from planners.dtensor.programs.own_step import own_step
from planners.dtensor.programs.training import (
    fsdp2_step,
    mlp,
    muon_step,
    optimizer_step,
    transformer_block,
)
from planners.dtensor.programs.world import OpProgram, make_mesh, placed, sharded, small_integers
from planners.dtensor.workloads import (
    OPS,
    ROUNDS,
    MissParameters,
    OpsParameters,
    function_of,
    mesh_shape,
    parameters_of,
)

# The number of batch sizes of `dynamic`, in rows per rank. No variant runs as many steps in one
# measurement, and even for the largest batch, computing takes much less time than deciding.
_BATCH_SIZES = 1024
_WIDTH = 8
_SIDE = 64


def build_program(workload: WorkloadSpec, topology: Topology) -> OpProgram:
    """Return the program of a workload; raises UsageError if it or its mesh is impossible."""
    parameters = parameters_of(workload)
    if workload.name in _TENSOR_PARALLEL:
        return _TENSOR_PARALLEL[workload.name](_tensor_parallel_mesh(topology, parameters.device))
    shape = mesh_shape(topology, getattr(parameters, "dims", 1))
    names = tuple(f"dim{index}" for index in range(len(shape)))
    mesh = make_mesh(shape, names, parameters.device)
    if own := function_of(workload):
        return own_step(*own, mesh, parameters, topology.gpus_in_domain)
    return _BUILDERS[workload.name](mesh, parameters)


def _tensor_parallel_mesh(topology: Topology, device: str) -> DeviceMesh:
    """Return a 1-D mesh of the ranks in a host; for several hosts, a slice of a 2-D mesh."""
    if topology.domains == 1:
        return make_mesh(mesh_shape(topology, 1), ("tensor",), device)
    shape = (topology.domains, topology.gpus_in_domain)
    return make_mesh(shape, ("data", "tensor"), device)["tensor"]


_Call = tuple[str, Callable[..., torch.Tensor], tuple[DTensor, ...]]
"""A call of an op: its name, the op and its operands."""


def _calls(mesh: DeviceMesh, names: Sequence[str]) -> list[_Call]:
    """Return calls of the named ops; inputs are mostly sharded by rows over the whole mesh."""
    by_rows, replicated = [Shard(0)] * mesh.ndim, [Replicate()] * mesh.ndim
    rows = placed(mesh, small_integers(4, 16), by_rows)
    whole = placed(mesh, small_integers(4, 16), replicated)
    weight = placed(mesh, small_integers(16, 8), replicated)
    bias = placed(mesh, small_integers(8), replicated)
    size = rows.shape[0]
    known: dict[str, tuple[Callable[..., torch.Tensor], tuple[DTensor, ...]]] = {
        "addmm": (torch.addmm, (bias, rows, weight)),
        "mm": (torch.mm, (rows, weight)),
        "mul": (torch.mul, (rows, rows)),
        "relu": (torch.relu, (rows,)),
        "add-scalar": (lambda x: x + 1.0, (rows,)),
        "view": (lambda x: x.view(4, 4, 4), (whole,)),
        "view-sharded": (lambda x: x.view(size, 4, 4), (rows,)),
        "t": (torch.t, (rows,)),
    }
    return [(name, *known[name]) for name in names]


_DRAWN: Mapping[Callable[..., torch.Tensor], int] = {
    torch.mm: 2,
    torch.addmm: 3,
    torch.mul: 2,
    torch.add: 2,
    torch.relu: 1,
}
"""The ops that are drawn, by their number of operands."""


def _drawn(mesh: DeviceMesh, wanted: int, seed: int) -> list[_Call]:
    """Return up to `wanted` different calls on square matrices with random placements."""
    rng = random.Random(seed)
    allowed = (Replicate(), Shard(0), Shard(1), Partial())
    calls: dict[object, _Call] = {}
    for op, operands in islice(cycle(_DRAWN.items()), wanted * 100):
        placements = tuple(
            tuple(rng.choice(allowed) for _ in range(mesh.ndim)) for _ in range(operands)
        )
        if (op, placements) not in calls:
            squares = tuple(sharded(mesh, (_SIDE, _SIDE), of_one) for of_one in placements)
            calls[op, placements] = (op.__name__, op, squares)
        if len(calls) == wanted:
            break
    return list(calls.values())


def _program(mesh: DeviceMesh, calls: Sequence[_Call], rounds: int, **options: Any) -> OpProgram:
    """Return the program of some calls, each repeated in a row."""

    def step() -> list[torch.Tensor]:
        made = []
        for _, op, operands in calls:
            for _ in range(rounds):
                result = op(*operands)
            made.append(result)
        return made

    names = tuple(name for name, *_ in calls)
    return OpProgram(mesh, step, names, rounds * len(calls), **options)


def _ops(mesh: DeviceMesh, parameters: OpsParameters) -> OpProgram:
    return _program(mesh, _calls(mesh, parameters.op), ROUNDS)


def _miss(mesh: DeviceMesh, parameters: MissParameters) -> OpProgram:
    if parameters.cases:
        drawn = _drawn(mesh, parameters.cases, parameters.seed or 0)
        return _program(mesh, drawn, 1, cold=True, compares_values=False)
    return _program(mesh, _calls(mesh, parameters.op or OPS), 1, cold=True)


def _dynamic(mesh: DeviceMesh, _: object) -> OpProgram:
    by_rows, replicated = [Shard(0)] * mesh.ndim, [Replicate()] * mesh.ndim
    rows = small_integers(_BATCH_SIZES + 1, _WIDTH)
    first = placed(mesh, small_integers(_WIDTH, _WIDTH), replicated)
    second = placed(mesh, small_integers(_WIDTH, _WIDTH), replicated)
    steps = count()

    def step() -> list[torch.Tensor]:
        batch = next(steps) % _BATCH_SIZES + 2
        with torch.no_grad():
            hidden = torch.mm(placed(mesh, rows[:batch], by_rows), first)
            active = torch.relu(hidden)
            return [hidden, active, torch.mm(active, second)]

    names = ("hidden", "active", "output")
    return OpProgram(
        mesh, step, names, size=3, compares_values=False, is_dynamic=True, counts_kept=True
    )


_TENSOR_PARALLEL = {"mlp": mlp, "transformer-block": transformer_block}
_BUILDERS: dict[str, Callable[[DeviceMesh, Any], OpProgram]] = {
    "ops": _ops,
    "miss": _miss,
    "dynamic": _dynamic,
    "optimizer": optimizer_step,
    "fsdp2-step": fsdp2_step,
    "muon": muon_step,
}
