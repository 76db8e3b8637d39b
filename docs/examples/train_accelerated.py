"""Train sharded models with and without quicker DTensor decisions and steps, and compare.

    python docs/examples/train_accelerated.py

Two processes on gloo and CPUs train the same MLP, each rank on batches of ever new sizes: its
parameters sharded by FSDP2, and then its layers split by tensor parallelism. Both are trained twice
from the same weights, by torch alone, and with `accelerate` and `accelerate_optimizer`. The losses
of all steps and the weights at the end must be the same to the last bit.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from shardbench import accelerate, accelerate_optimizer

RANKS = 2
WIDTH, HIDDEN = 32, 128
STEPS = 40


def shard_parameters(model: nn.Sequential, mesh: DeviceMesh) -> None:
    """Give each rank a part of every parameter, which is gathered when its layer runs."""
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def split_layers(model: nn.Sequential, mesh: DeviceMesh) -> None:
    """Give each rank a part of the work of every layer, on the same batch."""
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def train(
    distribute: Callable[[nn.Sequential, DeviceMesh], None],
    seed_of_batches: int,
    quicker_steps: bool = False,
) -> tuple[list[float], list[torch.Tensor], object]:
    """Train from the same weights each time; return losses, this rank's weights, and counts."""
    mesh = init_device_mesh("cpu", (RANKS,))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))
    distribute(model, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    accelerated = accelerate_optimizer(optimizer) if quicker_steps else None
    torch.manual_seed(seed_of_batches)
    losses = []
    for step in range(STEPS):
        batch = torch.randn(8 + step, WIDTH)
        loss = nn.functional.mse_loss(model(batch), batch.sin())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    weights = [
        each.to_local() if isinstance(each, DTensor) else each for each in model.parameters()
    ]
    counts = accelerated.info() if accelerated else None
    return losses, [each.detach().clone() for each in weights], counts


def compare(
    name: str, distribute: Callable[[nn.Sequential, DeviceMesh], None], seed_of_batches: int
) -> None:
    """Train without acceleration and with it; the results must be the same to the last bit."""
    losses, weights, _ = train(distribute, seed_of_batches)
    with accelerate(check=0.05) as accelerated:
        losses_again, weights_again, counts = train(distribute, seed_of_batches, quicker_steps=True)
        info = accelerated.cache_info()
    assert losses_again == losses
    assert all(map(torch.equal, weights_again, weights))
    if dist.get_rank() == 0:
        print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f} in {STEPS} steps, equal: yes")
        print(info)
        print(counts)


def run(rank: int, meeting_point: str) -> None:
    """Train as one of the ranks."""
    dist.init_process_group("gloo", init_method=meeting_point, rank=rank, world_size=RANKS)
    torch.set_num_threads(1)
    compare("FSDP2", shard_parameters, seed_of_batches=rank)  # a batch of its own
    compare("tensor parallel", split_layers, seed_of_batches=0)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, ((Path(folder) / "meeting-point").as_uri(),), nprocs=RANKS)
