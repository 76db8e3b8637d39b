"""A training step of a tensor-parallel model, as a workload of your own.

    shardbench compare dtensor -w docs/examples/my_step.py:step -t dgx_h100 -n 8 --against upstream

shardbench calls `step` once with a mesh over all ranks, then calls the returned function. One
process plays rank 0, with a process group whose collectives are fake, so that it runs anywhere.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

WIDTH = 64


class FeedForward(nn.Module):
    """Two linear layers with a shortcut around them."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x` (rows, features) with what the layers add to it."""
        return x + self.down(torch.relu(self.up(x)))


def step(mesh: DeviceMesh) -> Callable[[], torch.Tensor]:
    """Build the model, and return the function of one training step."""
    model = nn.Sequential(*(FeedForward() for _ in range(4)))
    for layer in model:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = torch.randn(16, WIDTH)

    def train() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return train
