"""Build the programs that train: steps of an optimizer, alone and under `fully_shard`."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from itertools import count

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard

from planners.dtensor.programs import fsdp
from planners.dtensor.programs.program import OpProgram, placed, small_integers
from planners.dtensor.workloads import Fsdp2Parameters, OptimizerParameters

_OPTIMIZERS: Mapping[str, tuple[Callable[..., torch.optim.Optimizer], Mapping[str, str]]] = {
    "adamw": (torch.optim.AdamW, {"exp_avg": "first moment", "exp_avg_sq": "second moment"}),
    "sgd": (partial(torch.optim.SGD, momentum=0.9), {"momentum_buffer": "momentum"}),
}
"""The optimizers, with the state that they keep for each parameter."""


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


_WEIGHT_SHAPES = ((16, 16), (16,), (4, 8, 16))
_REPLICATED_EVERY = 5


def optimizer_step(mesh: DeviceMesh, parameters: OptimizerParameters) -> OpProgram:
    """Return the program of an optimizer step on weights of mixed shapes, most of them sharded."""
    weights = []
    for number in range(parameters.params):
        shape = _WEIGHT_SHAPES[number % len(_WEIGHT_SHAPES)]
        last = Replicate() if number % _REPLICATED_EVERY == 0 else Shard(0)
        placements = [*[Replicate()] * (mesh.ndim - 1), last]
        weights.append(torch.nn.Parameter(placed(mesh, small_integers(*shape), placements)))
        weights[-1].grad = placed(mesh, small_integers(*shape), placements)
    chosen = parameters.impl
    make, kept = _OPTIMIZERS[parameters.rule]
    optimizer = make(weights, foreach=chosen == "foreach", fused=chosen == "fused")
    steps, results = count(1), _results(optimizer, weights, kept)

    def step() -> list[torch.Tensor]:
        if parameters.lr == "changing":
            optimizer.param_groups[0]["lr"] = 1e-3 / next(steps)
        if parameters.clip == "norm":  # to a norm so large that the gradients do not change
            torch.nn.utils.clip_grad_norm_(weights, 1e9, foreach=chosen != "single")
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


def fsdp2_step(mesh: DeviceMesh, parameters: Fsdp2Parameters) -> OpProgram:
    """Return the program of a training step; its values are those of fake collectives."""
    model = fsdp.fully_sharded(mesh, parameters.layers)
    make, kept = _OPTIMIZERS["adamw"]
    chosen = parameters.impl
    optimizer = make(model.parameters(), foreach=chosen == "foreach", fused=chosen == "fused")
    batch = small_integers(2, 4, 64).to(mesh.device_type)
    weights = dict(model.named_parameters())
    results = _results(optimizer, weights.values(), kept)

    def step() -> list[torch.Tensor]:
        fsdp.train(model, optimizer, batch)
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
        trains=True,
    )
