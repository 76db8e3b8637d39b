"""Ways to take the steps of an optimizer of DTensors, for variants: ours, others', the limit."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer, _muon
from torch.optim._muon import _zeropower_via_newtonschulz

from planners.dtensor.accelerate import hooks_of_fsdp
from planners.dtensor.optimizer.accelerate import accelerate_optimizer


@contextmanager
def on_local_tensors(optimizer: Optimizer) -> Iterator[None]:
    """Inside the context, step and clip as with `accelerate_optimizer`."""
    with (
        accelerate_optimizer(optimizer, any_release=True) as accelerated,
        _clipping(accelerated.clip_grad_norm_),
    ):
        yield


@contextmanager
def with_everything(optimizer: Optimizer) -> Iterator[None]:
    """Inside the context, step and clip on local tensors, with quicker hooks of FSDP2."""
    with on_local_tensors(optimizer), hooks_of_fsdp():
        yield


@contextmanager
def on_plain_tensors(optimizer: Optimizer) -> Iterator[None]:
    """Inside the context, step and clip with an optimizer of the local tensors and their state.

    That optimizer knows no DTensors, so gradients are clipped to the norm on this rank.
    """
    parameters: list[Any] = optimizer.param_groups[0]["params"]
    optimizer.step()  # makes the state
    plain = {parameter: torch.nn.Parameter(parameter._local_tensor) for parameter in parameters}
    options = {**optimizer.param_groups[0], "params": list(plain.values())}
    twin = type(optimizer)([options])
    for parameter, local in plain.items():
        local.grad = parameter.grad._local_tensor
        state = optimizer.state[parameter].items()
        twin.state[local] = {name: getattr(each, "_local_tensor", each) for name, each in state}

    def step() -> None:
        twin.param_groups[0]["lr"] = optimizer.param_groups[0]["lr"]
        twin.step()

    def clip(parameters: Iterable[DTensor], *limits: Any, **options: Any) -> torch.Tensor:
        return clip_grad_norm_(map(plain.__getitem__, parameters), *limits, **options)

    with mock.patch.object(optimizer, "step", step), _clipping(clip):
        yield


@contextmanager
def gather_each(_: Optimizer) -> Iterator[None]:
    """Inside the context, Muon gathers each update, and every rank orthogonalises all of them.

    Training scripts do this by hand.
    """

    def gathered(update: Any, *options: Any) -> DTensor:
        whole = _zeropower_via_newtonschulz(update.bfloat16().full_tensor(), *options)
        copies = DTensor.from_local(whole, update.device_mesh, run_check=False)
        return copies.redistribute(placements=update.placements)

    with mock.patch.object(_muon, "_zeropower_via_newtonschulz", gathered):
        yield


def _clipping(function: Any) -> Any:
    return mock.patch.object(torch.nn.utils, "clip_grad_norm_", function)
