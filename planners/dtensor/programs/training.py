"""Build the programs that train: models, steps of an optimizer, and steps under `fully_shard`."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from itertools import count

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from planners.dtensor.programs.program import OpProgram, placed, small_integers
from planners.dtensor.workloads import Fsdp2Parameters, OptimizerParameters

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

_OPTIMIZERS: Mapping[str, tuple[Callable[..., torch.optim.Optimizer], Mapping[str, str]]] = {
    "adamw": (torch.optim.AdamW, {"exp_avg": "first moment", "exp_avg_sq": "second moment"}),
    "sgd": (partial(torch.optim.SGD, momentum=0.9), {"momentum_buffer": "momentum"}),
}
"""The optimizers, with the state that they keep for each parameter."""

_WEIGHT_SHAPES = ((16, 16), (16,), (4, 8, 16))
_REPLICATED_EVERY = 5


def _results(
    optimizer: torch.optim.Optimizer, weights: Iterable[torch.Tensor], kept: Iterable[str]
) -> Callable[[], list[torch.Tensor]]:
    """Return a function for the weights and their state.

    Steps change them in place, so they are only collected after the first step.
    """

    @cache
    def results() -> list[torch.Tensor]:
        states = ((weight, optimizer.state[weight]) for weight in weights)
        return [part for weight, state in states for part in (weight, *map(state.get, kept))]

    return results


def optimizer_step(mesh: DeviceMesh, parameters: OptimizerParameters) -> OpProgram:
    """Return the program of an optimizer step on weights of mixed shapes, most of them sharded."""
    weights = []
    for number in range(parameters.params):
        shape = _WEIGHT_SHAPES[number % len(_WEIGHT_SHAPES)]
        last = Replicate() if number % _REPLICATED_EVERY == 0 else Shard(0)
        placements = [*[Replicate()] * (mesh.ndim - 1), last]
        weights.append(nn.Parameter(placed(mesh, small_integers(*shape), placements)))
        weights[-1].grad = placed(mesh, small_integers(*shape), placements)
    chosen = parameters.impl
    make, kept = _OPTIMIZERS[parameters.rule]
    optimizer = make(weights, foreach=chosen == "foreach", fused=chosen == "fused")
    steps, results = count(1), _results(optimizer, weights, kept)

    def step() -> list[torch.Tensor]:
        if parameters.lr == "changing":
            optimizer.param_groups[0]["lr"] = 1e-3 / next(steps)
        if parameters.clip == "norm":  # to a norm so large that the gradients do not change
            nn.utils.clip_grad_norm_(weights, 1e9, foreach=chosen != "single")
        optimizer.step()
        return results()

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


# Training steps under `fully_shard`


def fsdp2_step(mesh: DeviceMesh, parameters: Fsdp2Parameters) -> OpProgram:
    """Return the program of a training step; its values are those of fake collectives."""
    model = fully_sharded(mesh, parameters.layers)
    make, kept = _OPTIMIZERS["adamw"]
    chosen = parameters.impl
    optimizer = make(model.parameters(), foreach=chosen == "foreach", fused=chosen == "fused")
    batch = small_integers(2, 4, 64).to(mesh.device_type)
    weights = dict(model.named_parameters())
    results = _results(optimizer, weights.values(), kept)

    def step() -> list[torch.Tensor]:
        train(model, optimizer, batch)
        return results()

    names = [f"{part} of {name}" for name in weights for part in ("value", *kept.values())]
    return OpProgram(
        mesh,
        step,
        tuple(names),
        size=parameters.layers,
        compares_values=False,
        compares_moves=False,
        optimizer=optimizer,
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
