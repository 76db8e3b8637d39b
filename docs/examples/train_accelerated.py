"""Train a tensor-parallel model with and without quicker DTensor decisions, and compare.

    python docs/examples/train_accelerated.py

Two processes on gloo and CPUs train the same MLP twice from the same weights, on batches of ever
new sizes: by torch's own dispatch, and after one call of `accelerate`. The losses of all steps and
the weights at the end must be the same to the last bit.
"""

import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from planners.dtensor.accelerate import accelerate

RANKS = 2
WIDTH, HIDDEN = 32, 128
STEPS = 60
SECONDS = 120


def train() -> tuple[list[float], list[torch.Tensor]]:
    """Train from the same weights each time; return the losses, and this rank's weights."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (RANKS,))
    model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(STEPS):
        batch = torch.randn(8 + step, WIDTH)
        loss = nn.functional.mse_loss(model(batch), batch.sin())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    weights = [
        each.to_local() if isinstance(each, DTensor) else each for each in model.parameters()
    ]
    return losses, [each.detach().clone() for each in weights]


def run(rank: int, meeting_point: str) -> None:
    """Train twice as one of the ranks, and compare."""
    dist.init_process_group(
        "gloo",
        init_method=meeting_point,
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=SECONDS),
    )
    torch.set_num_threads(1)
    losses, weights = train()
    with accelerate() as accelerated:
        losses_again, weights_again = train()
        info = accelerated.cache_info()
    assert losses_again == losses
    assert all(map(torch.equal, weights_again, weights))
    if rank == 0:
        print(f"loss {losses[0]:.4f} to {losses[-1]:.4f} in {STEPS} steps, equal: yes")
        print(info)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Run the ranks."""
    with tempfile.TemporaryDirectory() as folder:
        meeting_point = (Path(folder) / "meeting-point").as_uri()
        mp.spawn(run, (meeting_point,), nprocs=RANKS)


if __name__ == "__main__":
    main()
