"""A training step of a transformer under `fully_shard`: forward, backward, clipping, optimizer."""

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from planners.dtensor.programs.modules import transformer

_MAX_NORM = 1.0


def fully_sharded(mesh: DeviceMesh, layers: int) -> nn.Module:
    """Return a small transformer; each block is gathered on its own, as users shard."""
    model = transformer(layers).to(mesh.device_type)
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
    """Clip the gradients, by the function in torch's module."""
    torch.nn.utils.clip_grad_norm_(model.parameters(), _MAX_NORM)


def take_step(optimizer: torch.optim.Optimizer) -> None:
    """Take the optimizer's step, and drop the gradients."""
    optimizer.step()
    optimizer.zero_grad()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    """Train on a batch. An observer replaces the four functions."""
    backward(forward(model, batch))
    clip(model)
    take_step(optimizer)
