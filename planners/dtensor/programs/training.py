"""Build the programs that train: models, steps of an optimizer, and steps under `fully_shard`."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from planners.dtensor.programs.matrices import MATRICES
from planners.dtensor.programs.world import OpProgram, sharded, small_integers
from planners.dtensor.workloads import Fsdp2Parameters, MuonParameters, OptimizerParameters

_HEAD_WIDTH = 8

# Models


def _feed_forward(width: int, hidden: int) -> nn.Sequential:
    layers = {"up": nn.Linear(width, hidden), "relu": nn.ReLU(), "down": nn.Linear(hidden, width)}
    return nn.Sequential(OrderedDict(layers))


class _CausalAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        for name in ("query", "key", "value", "output"):
            self.add_module(name, nn.Linear(width, width, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = (
            projected(x).unflatten(-1, (-1, _HEAD_WIDTH)).transpose(1, 2)
            for projected in (self.query, self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.output(mixed.transpose(1, 2).flatten(-2))


class _TransformerBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = _CausalAttention(width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = _feed_forward(width, 4 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


def mlp(mesh: DeviceMesh) -> OpProgram:
    """Return the program of an MLP, column-wise then row-wise parallel, 8 hidden units a rank."""
    module = _feed_forward(16, 8 * mesh.size())
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in module.parameters():
            # Small whole numbers, so that sums of products are exact: the same on any CPU.
            weight.copy_(torch.randint(-3, 4, weight.shape, generator=generator))
    module.to(mesh.device_type)
    parallelize_module(module, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return _forward_and_backward(module, small_integers(4, 16), mesh)


def transformer_block(mesh: DeviceMesh) -> OpProgram:
    """Return the program of a tensor- and sequence-parallel block, with a head on each rank."""
    torch.manual_seed(0)
    gathered = PrepareModuleInput(
        input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),), use_local_output=True
    )
    width = _HEAD_WIDTH * mesh.size()
    module = parallelize_module(
        _TransformerBlock(width).to(mesh.device_type),
        mesh,
        {
            "attention_norm": SequenceParallel(),
            "attention": gathered,
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.output": RowwiseParallel(output_layouts=Shard(1)),
            "feed_forward_norm": SequenceParallel(),
            "feed_forward": gathered,
            "feed_forward.up": ColwiseParallel(),
            "feed_forward.down": RowwiseParallel(output_layouts=Shard(1)),
        },
    )
    return _forward_and_backward(module, small_integers(2, 4, width), mesh)


def _forward_and_backward(module: nn.Module, batch: torch.Tensor, mesh: DeviceMesh) -> OpProgram:
    batch = batch.to(mesh.device_type).requires_grad_()
    names, weights = zip(*module.named_parameters(), strict=True)

    def step() -> list[torch.Tensor]:
        for tensor in (batch, *weights):
            tensor.grad = None
        output = module(batch)
        output.sum().backward()
        return [output.detach(), batch.grad, *(weight.grad for weight in weights)]

    made = ("output", "gradient of the input", *(f"gradient of {name}" for name in names))
    return OpProgram(mesh, step, made, size=len(weights), differentiates=True)


# Steps of an optimizer

_STATE: Mapping[type[torch.optim.Optimizer], Mapping[str, str]] = {
    torch.optim.AdamW: {"exp_avg": "first moment", "exp_avg_sq": "second moment"},
    torch.optim.SGD: {"momentum_buffer": "momentum"},
    torch.optim.Muon: {"momentum_buffer": "momentum"},
}
"""The state that an optimizer keeps for each parameter, with its name in results."""

_WEIGHT_SHAPES = ((16, 16), (16,), (4, 8, 16))
_REPLICATED_EVERY = 5


def program_of_optimizer(
    step: Callable[[], object],
    optimizer: torch.optim.Optimizer,
    weights: Mapping[str, Any],
    kind: str = "parameter",
    **options: Any,
) -> OpProgram:
    """Return the program of a step with an optimizer; its results are the weights and their state.

    `weights` has a label for each weight; `kind` is the word before the label in its name.
    """
    kept = _STATE[type(optimizer)]

    @cache  # steps change the tensors in place, so they are collected only once
    def results() -> list[torch.Tensor]:
        states = ((weight, optimizer.state[weight]) for weight in weights.values())
        return [part for weight, state in states for part in (weight, *map(state.get, kept))]

    def stepped() -> list[torch.Tensor]:
        step()
        return results()

    parts = (kind, *kept.values())
    return OpProgram(
        mesh=next(iter(weights.values())).device_mesh,
        step=stepped,
        names=tuple(f"{part} {label}" for label in weights for part in parts),
        compares_values=False,  # each step changes them
        optimizer=optimizer,
        **{"size": len(weights), **options},
    )


def weight_with_gradient(
    mesh: DeviceMesh, shape: Sequence[int], placement: Placement
) -> nn.Parameter:
    """Return a weight that the last mesh dimension places as given; the others have copies."""
    placements = [*[Replicate()] * (mesh.ndim - 1), placement]
    weight = nn.Parameter(sharded(mesh, shape, placements))
    weight.grad = sharded(mesh, shape, placements)
    return weight


def optimizer_step(mesh: DeviceMesh, parameters: OptimizerParameters) -> OpProgram:
    """Return the program of an optimizer step on weights of mixed shapes, most of them sharded."""
    weights = []
    for number in range(parameters.params):
        rows, *rest = _WEIGHT_SHAPES[number % len(_WEIGHT_SHAPES)]
        if number % _REPLICATED_EVERY == 0:
            weights.append(weight_with_gradient(mesh, (rows, *rest), Replicate()))
        else:
            weights.append(weight_with_gradient(mesh, (rows * mesh.shape[-1], *rest), Shard(0)))
    chosen = parameters.impl
    options = {"foreach": chosen == "foreach", "fused": chosen == "fused"}
    optimizer: torch.optim.Optimizer
    if parameters.rule == "sgd":
        optimizer = torch.optim.SGD(weights, momentum=0.9, **options)
    else:
        optimizer = torch.optim.AdamW(weights, **options)
    steps = count(1)

    def step() -> None:
        if parameters.lr == "changing":
            optimizer.param_groups[0]["lr"] = 1e-3 / next(steps)
        if parameters.clip == "norm":  # to a norm so large that the gradients do not change
            nn.utils.clip_grad_norm_(weights, 1e9, foreach=chosen != "single")
        optimizer.step()

    return program_of_optimizer(
        step,
        optimizer,
        {str(number): weight for number, weight in enumerate(weights)},
        compares_moves=parameters.clip == "none",
        counts_kept=True,
    )


def muon_step(mesh: DeviceMesh, parameters: MuonParameters) -> OpProgram:
    """Return the program of a step of Muon; matrices are sharded over the last mesh dimension."""
    shapes = MATRICES[parameters.model](parameters.layers)
    weights = [weight_with_gradient(mesh, shape, Shard(parameters.shard)) for shape in shapes]
    optimizer = torch.optim.Muon(weights)
    return program_of_optimizer(
        lambda: optimizer.step(),  # as it is then: variants replace it
        optimizer,
        {str(number): weight for number, weight in enumerate(weights)},
        compares_moves=False,
    )


# Training steps under `fully_shard`


def fsdp2_step(mesh: DeviceMesh, parameters: Fsdp2Parameters) -> OpProgram:
    """Return the program of a training step; its values are those of fake collectives."""
    model = fully_sharded(mesh, parameters.layers)
    chosen = parameters.impl
    optimizer = torch.optim.AdamW(
        model.parameters(), foreach=chosen == "foreach", fused=chosen == "fused"
    )
    batch = small_integers(2, 4, 64).to(mesh.device_type)
    return program_of_optimizer(
        lambda: train(model, optimizer, batch),
        optimizer,
        {f"of {name}": weight for name, weight in model.named_parameters()},
        "value",
        size=parameters.layers,
        compares_moves=False,
        differentiates=True,
    )


def fully_sharded(mesh: DeviceMesh, layers: int) -> nn.Module:
    """Return blocks of 8 heads of 8 features; each is gathered on its own, as users shard."""
    torch.manual_seed(0)
    model = nn.Sequential(*(_TransformerBlock(8 * _HEAD_WIDTH) for _ in range(layers)))
    model.to(mesh.device_type)
    for block in model.children():
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def forward(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Return the loss of a batch."""
    loss: torch.Tensor = model(batch).square().mean()
    return loss


def backward(loss: torch.Tensor) -> None:
    """Compute the gradients; a function of its own, to be timed."""
    loss.backward()


def clip(model: nn.Module) -> None:
    """Clip the gradients to norm 1, by the function in torch's module."""
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def take_step(optimizer: torch.optim.Optimizer) -> None:
    """Take the optimizer's step, and drop the gradients."""
    optimizer.step()
    optimizer.zero_grad()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    """Train on a batch. An observer replaces the four functions."""
    backward(forward(model, batch))
    clip(model)
    take_step(optimizer)
