"""Build the programs of the workloads; every variant runs these programs."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, cycle, islice
from typing import Any, NamedTuple

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from harness.contract import Topology, WorkloadSpec
from planners.dtensor.programs import fsdp
from planners.dtensor.programs.modules import mlp, transformer_block
from planners.dtensor.programs.world import make_mesh
from planners.dtensor.workloads import (
    OPS,
    ROUNDS,
    DynamicParameters,
    Fsdp2Parameters,
    MissParameters,
    OpsParameters,
    OptimizerParameters,
    mesh_shape,
    parameters_of,
)

# The number of batch sizes of `dynamic`, in rows per rank. No variant runs as many steps in one
# measurement, and even for the largest batch, computing takes much less time than deciding.
_BATCH_SIZES = 1024
_WIDTH = 8
_SIDE = 64

StepFunction = Callable[[], Sequence[torch.Tensor]]


@dataclass(frozen=True, slots=True)
class RecordedDecisions:
    """Torch's decisions in the process in which a step was captured."""

    results: tuple[object, ...]  # in the order of `OpProgram.names`; None for a missing result
    moves: Counter[tuple[str, tuple[Any, ...]]]  # number of times that each op moved these inputs


@dataclass(frozen=True, slots=True)
class OpProgram:
    """A program of ops on the DTensors of a mesh, and how to run and check it."""

    mesh: DeviceMesh
    step: StepFunction  # one call; returns its results in the order of `names`
    names: tuple[str, ...]
    size: int  # the number of ops, or of parameters or layers in training
    shapes: tuple[torch.Size, ...] | None = None  # global shapes of results, if known in advance
    cold: bool = False  # every call starts with cold caches
    compares_values: bool = True  # all calls have the same values, in spite of fake collectives
    compares_moves: bool = True  # clipping may move partial norms, or add them up in another way
    is_dynamic: bool = False  # the first dimension varies, and decisions do not depend on it
    renew: Callable[[], None] | None = None  # called before a `step` that changes its input
    recorded: RecordedDecisions | None = None  # of a captured step, in the original process
    notes: Mapping[str, float | str] = field(
        default_factory=dict
    )  # facts to show next to size and mesh
    optimizer: torch.optim.Optimizer | None = None  # for variants that replace its step
    trains: bool = False  # each step makes new gradients for the optimizer
    counts_kept: bool = False  # whether objects that outlive a step are counted


class _OpCall(NamedTuple):
    """A call of an op on its operands."""

    name: str
    op: Callable[..., torch.Tensor]
    operands: tuple[DTensor, ...]

    def shape(self) -> torch.Size:
        """Return the global shape of the result, computed by torch without DTensor."""
        return self.op(*(torch.empty(x.shape, device="meta") for x in self.operands)).shape


def build_program(workload: WorkloadSpec, topology: Topology) -> OpProgram:
    """Return the program of a workload; raises UsageError if it or its mesh is impossible."""
    parameters = parameters_of(workload)
    if workload.name == "mlp":
        mesh = _tensor_parallel_mesh(topology, parameters.device)
        return _trained(mlp(mesh), _random(4, 16), mesh)
    if workload.name == "transformer-block":
        mesh = _tensor_parallel_mesh(topology, parameters.device)
        return _trained(transformer_block(mesh), _random(2, 4, 8 * mesh.size()), mesh)
    shape = mesh_shape(topology, getattr(parameters, "dims", 1))
    names = tuple(f"dim{index}" for index in range(len(shape)))
    mesh = make_mesh(shape, names, parameters.device)
    return _BUILDERS[workload.name](mesh, parameters)


def _tensor_parallel_mesh(topology: Topology, device: str) -> DeviceMesh:
    """Return a 1-D mesh of the ranks in a host; for several hosts, a slice of a 2-D mesh."""
    if topology.domains == 1:
        return make_mesh(mesh_shape(topology, 1), ("tensor",), device)
    shape = (topology.domains, topology.gpus_in_domain)
    return make_mesh(shape, ("data", "tensor"), device)["tensor"]


def _placed(
    mesh: DeviceMesh, local: torch.Tensor, placements: Sequence[Placement], **whole: Any
) -> DTensor:
    local = local.to(mesh.device_type)
    return DTensor.from_local(local, mesh, placements, run_check=False, **whole)


def _random(*shape: int) -> torch.Tensor:
    """Return small random integers as floats, so products and sums are exact on any CPU."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-3, 4, shape, generator=generator).float()


def _calls(mesh: DeviceMesh, names: Sequence[str]) -> list[_OpCall]:
    """Return calls of the named ops; inputs are mostly sharded by rows over the whole mesh."""
    sharded, replicated = [Shard(0)] * mesh.ndim, [Replicate()] * mesh.ndim
    rows = _placed(mesh, _random(4, 16), sharded)
    whole = _placed(mesh, _random(4, 16), replicated)
    weight = _placed(mesh, _random(16, 8), replicated)
    bias = _placed(mesh, _random(8), replicated)
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
    return [_OpCall(name, *known[name]) for name in names]


_DRAWN: Mapping[Callable[..., torch.Tensor], int] = {
    torch.mm: 2,
    torch.addmm: 3,
    torch.mul: 2,
    torch.add: 2,
    torch.relu: 1,
}
"""The ops that are drawn, by their number of operands."""


def _drawn(mesh: DeviceMesh, wanted: int, seed: int) -> list[_OpCall]:
    """Return up to `wanted` different calls on square matrices with random placements."""
    rng = random.Random(seed)
    allowed = (Replicate(), Shard(0), Shard(1), Partial())
    calls: dict[object, _OpCall] = {}
    for op, operands in islice(cycle(_DRAWN.items()), wanted * 100):
        placements = tuple(
            tuple(rng.choice(allowed) for _ in range(mesh.ndim)) for _ in range(operands)
        )
        if (op, placements) not in calls:
            squares = tuple(_square(mesh, of_one) for of_one in placements)
            calls[op, placements] = _OpCall(op.__name__, op, squares)
        if len(calls) == wanted:
            break
    return list(calls.values())


def _square(mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
    whole = torch.Size((_SIDE, _SIDE))
    local, _ = compute_local_shape_and_global_offset(whole, mesh, placements, skip_offset=True)
    return _placed(mesh, _random(*local), placements, shape=whole, stride=(_SIDE, 1))


def _ops(mesh: DeviceMesh, parameters: OpsParameters) -> OpProgram:
    calls = _calls(mesh, parameters.op)

    def step() -> list[torch.Tensor]:
        made = []
        for _, op, operands in calls:
            for _ in range(ROUNDS):
                result = op(*operands)
            made.append(result)
        return made

    shapes = tuple(call.shape() for call in calls)
    return OpProgram(mesh, step, parameters.op, ROUNDS * len(calls), shapes)


def _miss(mesh: DeviceMesh, parameters: MissParameters) -> OpProgram:
    drawn = parameters.cases
    calls = (
        _drawn(mesh, drawn, parameters.seed or 0) if drawn else _calls(mesh, parameters.op or OPS)
    )

    def step() -> list[torch.Tensor]:
        return [op(*operands) for _, op, operands in calls]

    return OpProgram(
        mesh,
        step,
        tuple(call.name for call in calls),
        size=len(calls),
        shapes=tuple(call.shape() for call in calls),
        cold=True,
        compares_values=not drawn,
    )


def _dynamic(mesh: DeviceMesh, _: DynamicParameters) -> OpProgram:
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
    return OpProgram(
        mesh, step, names, size=3, compares_values=False, is_dynamic=True, counts_kept=True
    )


def _trained(module: torch.nn.Module, batch: torch.Tensor, mesh: DeviceMesh) -> OpProgram:
    batch = batch.to(mesh.device_type).requires_grad_()
    names, weights = zip(*module.named_parameters(), strict=True)

    def step() -> list[torch.Tensor]:
        for tensor in (batch, *weights):
            tensor.grad = None
        output = module(batch)
        output.sum().backward()
        return [output.detach(), batch.grad, *(weight.grad for weight in weights)]

    made = ("output", "gradient of the input", *(f"gradient of {name}" for name in names))
    return OpProgram(mesh, step, made, size=len(weights))


_OPTIMIZERS: Mapping[str, tuple[Callable[..., torch.optim.Optimizer], Mapping[str, str]]] = {
    "adamw": (torch.optim.AdamW, {"exp_avg": "first moment", "exp_avg_sq": "second moment"}),
    "sgd": (partial(torch.optim.SGD, momentum=0.9), {"momentum_buffer": "momentum"}),
}
"""The optimizers, with the state that they keep for each parameter."""

_WEIGHT_SHAPES = ((16, 16), (16,), (4, 8, 16))
_REPLICATED_EVERY = 5


def _optimizer(mesh: DeviceMesh, parameters: OptimizerParameters) -> OpProgram:
    """Return the program of an optimizer step on weights of mixed shapes, most of them sharded."""
    weights = []
    for number in range(parameters.params):
        shape = _WEIGHT_SHAPES[number % len(_WEIGHT_SHAPES)]
        last = Replicate() if number % _REPLICATED_EVERY == 0 else Shard(0)
        placements = [*[Replicate()] * (mesh.ndim - 1), last]
        weights.append(torch.nn.Parameter(_placed(mesh, _random(*shape), placements)))
        weights[-1].grad = _placed(mesh, _random(*shape), placements)
    chosen = parameters.impl
    make, kept = _OPTIMIZERS[parameters.rule]
    optimizer = make(weights, foreach=chosen == "foreach", fused=chosen == "fused")

    steps = count(1)

    def step() -> list[torch.Tensor]:
        if parameters.lr == "changing":
            optimizer.param_groups[0]["lr"] = 1e-3 / next(steps)
        if parameters.clip == "norm":  # to a norm so large that the gradients do not change
            torch.nn.utils.clip_grad_norm_(weights, 1e9, foreach=chosen != "single")
        optimizer.step()
        states = [(weight, optimizer.state[weight]) for weight in weights]
        return [part for weight, state in states for part in (weight, *map(state.get, kept))]

    parts = ("parameter", *kept.values())
    names = tuple(f"{part} {index}" for index in range(len(weights)) for part in parts)
    # Each step changes the weights, so the values of two calls differ.
    return OpProgram(
        mesh,
        step,
        names,
        size=len(weights),
        compares_values=False,
        compares_moves=parameters.clip == "none",
        optimizer=optimizer,
        counts_kept=True,
    )


def _fsdp2_step(mesh: DeviceMesh, parameters: Fsdp2Parameters) -> OpProgram:
    """Return the program of a training step; its values are those of fake collectives."""
    model = fsdp.fully_sharded(mesh, parameters.layers)
    make, kept = _OPTIMIZERS["adamw"]
    chosen = parameters.impl
    optimizer = make(model.parameters(), foreach=chosen == "foreach", fused=chosen == "fused")
    batch = _random(2, 4, 64).to(mesh.device_type)
    weights = dict(model.named_parameters())

    def step() -> list[torch.Tensor]:
        fsdp.train(model, optimizer, batch)
        states = ((weight, optimizer.state[weight]) for weight in weights.values())
        return [part for weight, state in states for part in (weight, *map(state.get, kept))]

    names = [f"{part} of {name}" for name in weights for part in ("value", *kept.values())]
    return OpProgram(
        mesh,
        step,
        tuple(names),
        size=parameters.layers,
        compares_values=False,
        compares_moves=False,
        optimizer=optimizer,
        trains=True,
    )


_BUILDERS: dict[str, Callable[[DeviceMesh, Any], OpProgram]] = {
    "ops": _ops,
    "miss": _miss,
    "dynamic": _dynamic,
    "optimizer": _optimizer,
    "fsdp2-step": _fsdp2_step,
}
