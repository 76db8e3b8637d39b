"""The programs: what a call of a variant runs, on real DTensors."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from harness.contract import Topology, WorkloadSpec
from planners.dtensor.programs.modules import mlp, transformer_block
from planners.dtensor.programs.world import make_mesh
from planners.dtensor.workloads import (
    ROUNDS,
    dims,
    implementation,
    mesh_shape,
    ops,
    parameters,
    random_cases,
)

# Batch sizes of `dynamic`, in rows per rank, come round after so many steps: far more than a turn
# of any variant has, and few enough that computing stays small beside deciding.
_BATCH_SIZES = 1024
_WIDTH = 8
_SIDE = 64


@dataclass(frozen=True, slots=True)
class Recorded:
    """What torch decided where a step was captured.

    Attributes:
        results: where each result lay, in the order of the program's names; None where there is one
            more here.
        moves: how often an op moved inputs so, all its moves as JSON text.
    """

    results: tuple[Mapping[str, Any] | None, ...]
    moves: Counter[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Program:
    """What is run, on `mesh`.

    Attributes:
        step: one call; returns what it made, in the order of `names`.
        size: how many ops it has, or for `optimizer` parameters.
        shapes: the global shapes of what it makes, where they are known beforehand.
        cold: every call starts with cold caches; otherwise they are warm.
        compares_values: what it makes holds no result of a made-up collective, or the same one
            each time, so that variants must agree on the values.
        is_dynamic: the first dimension differs from call to call, and is no part of the decision.
        renew: to be called before each call of `step`, where that uses up what it works on.
        recorded: what was decided for it elsewhere.
        notes: what else to say of it, beside its size and its mesh.
    """

    mesh: DeviceMesh
    step: Callable[[], Sequence[torch.Tensor]]
    names: tuple[str, ...]
    size: int
    shapes: tuple[torch.Size, ...] | None = None
    cold: bool = False
    compares_values: bool = True
    is_dynamic: bool = False
    renew: Callable[[], None] | None = None
    recorded: Recorded | None = None
    notes: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Use:
    """One op on its operands."""

    name: str
    op: Callable[..., torch.Tensor]
    operands: tuple[DTensor, ...]

    def run(self) -> torch.Tensor:
        return self.op(*self.operands)

    def shape(self) -> torch.Size:
        """Return the global shape of what it makes, as plain torch has it."""
        return self.op(*(torch.empty(each.shape, device="meta") for each in self.operands)).shape


def build_program(workload: WorkloadSpec, topology: Topology) -> Program:
    """Build the program of a checked workload; raises UsageError where no mesh is possible."""
    return _BUILDERS[workload.name](workload, topology)


def _mesh(workload: WorkloadSpec, topology: Topology) -> DeviceMesh:
    shape = mesh_shape(topology, dims(workload))
    return make_mesh(shape, tuple(f"dim{index}" for index in range(len(shape))))


def _tensor_parallel_mesh(topology: Topology) -> DeviceMesh:
    """Return the ranks of one host, of a mesh that is as wide as there are hosts."""
    if topology.domains == 1:
        return make_mesh(mesh_shape(topology, 1), ("tensor",))
    return make_mesh((topology.domains, topology.gpus_in_domain), ("data", "tensor"))["tensor"]


def _placed(mesh: DeviceMesh, local: torch.Tensor, placements: Sequence[Placement]) -> DTensor:
    return DTensor.from_local(local, mesh, placements, run_check=False)


def _random(*shape: int) -> torch.Tensor:
    """Return small whole numbers: their products and sums are exact, so the same on any CPU."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-3, 4, shape, generator=generator).float()


def _uses(mesh: DeviceMesh, names: Sequence[str]) -> list[_Use]:
    """Return the named ops on rows that are sharded over the whole mesh."""
    sharded, replicated = [Shard(0)] * mesh.ndim, [Replicate()] * mesh.ndim
    rows = _placed(mesh, _random(4, 16), sharded)
    whole = _placed(mesh, _random(4, 16), replicated)
    weight = _placed(mesh, _random(16, 8), replicated)
    bias = _placed(mesh, _random(8), replicated)
    size = rows.shape[0]
    known = {
        "addmm": _Use("addmm", torch.addmm, (bias, rows, weight)),
        "mm": _Use("mm", torch.mm, (rows, weight)),
        "mul": _Use("mul", torch.mul, (rows, rows)),
        "relu": _Use("relu", torch.relu, (rows,)),
        "add-scalar": _Use("add-scalar", lambda x: x + 1.0, (rows,)),
        "view": _Use("view", lambda x: x.view(4, 4, 4), (whole,)),
        "view-sharded": _Use("view-sharded", lambda x: x.view(size, 4, 4), (rows,)),
        "t": _Use("t", torch.t, (rows,)),
    }
    return [known[name] for name in names]


_DRAWN: tuple[tuple[str, Callable[..., torch.Tensor], int], ...] = (
    ("mm", torch.mm, 2),
    ("addmm", torch.addmm, 3),
    ("mul", torch.mul, 2),
    ("add", torch.add, 2),
    ("relu", torch.relu, 1),
)


def _random_uses(mesh: DeviceMesh, wanted: int, seed: int) -> list[_Use]:
    """Return ops on square matrices, each with placements of its own, drawn at random."""
    rng = random.Random(seed)
    allowed = (Replicate(), Shard(0), Shard(1), Partial())
    uses: dict[tuple[str, tuple[tuple[Placement, ...], ...]], _Use] = {}
    for attempt in range(wanted * 100):
        name, op, operands = _DRAWN[attempt % len(_DRAWN)]
        placements = tuple(
            tuple(rng.choice(allowed) for _ in range(mesh.ndim)) for _ in range(operands)
        )
        if (name, placements) not in uses:
            uses[name, placements] = _Use(
                name, op, tuple(_square(mesh, each) for each in placements)
            )
        if len(uses) == wanted:
            break
    return list(uses.values())


def _square(mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
    whole = torch.Size((_SIDE, _SIDE))
    local, _ = compute_local_shape_and_global_offset(whole, mesh, placements, skip_offset=True)
    return DTensor.from_local(
        _random(*local), mesh, placements, run_check=False, shape=whole, stride=(_SIDE, 1)
    )


def _ops(workload: WorkloadSpec, topology: Topology) -> Program:
    mesh = _mesh(workload, topology)
    uses = _uses(mesh, ops(workload))

    def step() -> list[torch.Tensor]:
        made = []
        for use in uses:
            op, operands = use.op, use.operands
            for _ in range(ROUNDS):
                result = op(*operands)
            made.append(result)
        return made

    return Program(
        mesh,
        step,
        tuple(use.name for use in uses),
        size=ROUNDS * len(uses),
        shapes=tuple(use.shape() for use in uses),
    )


def _miss(workload: WorkloadSpec, topology: Topology) -> Program:
    mesh = _mesh(workload, topology)
    drawn, seed = random_cases(workload)
    uses = _random_uses(mesh, drawn, seed) if drawn else _uses(mesh, ops(workload))
    return Program(
        mesh,
        lambda: [use.run() for use in uses],
        tuple(use.name for use in uses),
        size=len(uses),
        shapes=tuple(use.shape() for use in uses),
        cold=True,
        compares_values=not drawn,
    )


def _dynamic(workload: WorkloadSpec, topology: Topology) -> Program:
    mesh = _mesh(workload, topology)
    sharded, replicated = [Shard(0)] * mesh.ndim, [Replicate()] * mesh.ndim
    rows = _random(_BATCH_SIZES + 1, _WIDTH)
    first = _placed(mesh, _random(_WIDTH, _WIDTH), replicated)
    second = _placed(mesh, _random(_WIDTH, _WIDTH), replicated)
    steps = count()

    def step() -> list[torch.Tensor]:
        batch = next(steps) % _BATCH_SIZES + 2
        with torch.no_grad():
            hidden = torch.mm(_placed(mesh, rows[:batch], sharded), first)
            active = torch.relu(hidden)
            return [hidden, active, torch.mm(active, second)]

    names = ("hidden", "active", "output")
    return Program(mesh, step, names, size=3, compares_values=False, is_dynamic=True)


def _trained(module: torch.nn.Module, batch: torch.Tensor, mesh: DeviceMesh) -> Program:
    batch.requires_grad_()
    names, weights = zip(*module.named_parameters(), strict=True)

    def step() -> list[torch.Tensor]:
        for tensor in (batch, *weights):
            tensor.grad = None
        output = module(batch)
        output.sum().backward()
        return [output.detach(), batch.grad, *(weight.grad for weight in weights)]

    return Program(
        mesh,
        step,
        ("output", "gradient of the input", *(f"gradient of {name}" for name in names)),
        size=len(weights),
    )


def _mlp(_: WorkloadSpec, topology: Topology) -> Program:
    mesh = _tensor_parallel_mesh(topology)
    return _trained(mlp(mesh), _random(4, 16), mesh)


def _transformer_block(_: WorkloadSpec, topology: Topology) -> Program:
    mesh = _tensor_parallel_mesh(topology)
    return _trained(transformer_block(mesh), _random(2, 4, 8 * mesh.size()), mesh)


def _optimizer(workload: WorkloadSpec, topology: Topology) -> Program:
    mesh = _mesh(workload, topology)
    placements = [*[Replicate()] * (mesh.ndim - 1), Shard(0)]
    weights = []
    for _ in range(parameters(workload)):
        weights.append(torch.nn.Parameter(_placed(mesh, _random(16, 16), placements)))
        weights[-1].grad = _placed(mesh, _random(16, 16), placements)
    chosen = implementation(workload)
    optimizer = torch.optim.AdamW(weights, foreach=chosen == "foreach", fused=chosen == "fused")

    def step() -> list[torch.Tensor]:
        optimizer.step()
        return [part for weight in weights for part in (weight, *_moments(optimizer, weight))]

    names = tuple(
        f"{part} {index}"
        for index in range(len(weights))
        for part in ("parameter", "first moment", "second moment")
    )
    # Each step changes the values, so that those of two calls differ.
    return Program(mesh, step, names, size=len(weights), compares_values=False)


def _moments(
    optimizer: torch.optim.Optimizer, weight: torch.nn.Parameter
) -> tuple[torch.Tensor, torch.Tensor]:
    state = optimizer.state[weight]
    return state["exp_avg"], state["exp_avg_sq"]


_BUILDERS: dict[str, Callable[[WorkloadSpec, Topology], Program]] = {
    "ops": _ops,
    "miss": _miss,
    "dynamic": _dynamic,
    "mlp": _mlp,
    "transformer-block": _transformer_block,
    "optimizer": _optimizer,
}
