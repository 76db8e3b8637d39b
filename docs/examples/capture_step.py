"""Capture one training step of a tensor-parallel model, for `shardbench compare dtensor`.

    python docs/examples/capture_step.py step.json.gz
    shardbench compare dtensor -w step.json.gz --against upstream

One process plays rank 0 of eight, in a process group whose collectives are fake, so that it runs
anywhere. In a script of your own the two lines around the step are all that is new.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

from shardbench import capture

RANKS = 8
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


def main(path: str) -> None:
    """Train for three steps, and capture the last one."""
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tensor",))
    model = nn.Sequential(*(FeedForward() for _ in range(4)))
    for layer in model:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        optimizer.step()

    batch = torch.randn(16, WIDTH)
    for _ in range(2):
        step(batch)  # so that the optimizer has its state
    with capture("dtensor", path):
        step(batch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
