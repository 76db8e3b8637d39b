"""Resident memory of an MLP whose batch has a new size in each step, with and without accelerate().

python docs/examples/memory_of_new_sizes.py accelerated|torch [STEPS]
"""

import gc
import sys
from contextlib import nullcontext

import psutil
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

from shardbench import accelerate

RANKS, WIDTH, LOOKS = 8, 16, 4


def mib() -> float:
    """Return this process's resident memory in MiB."""
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20


def train(steps: int) -> None:
    """Print the memory at the start and after each part of the steps."""
    layers = [torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.ReLU(), torch.nn.Linear(4 * WIDTH, WIDTH)]
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    mesh = init_device_mesh("cpu", (RANKS,))
    model = parallelize_module(torch.nn.Sequential(*layers), mesh, plan)
    for step in range(steps):
        model(torch.ones(2 + step, WIDTH)).sum().backward()
        model.zero_grad()
        if step % (steps // LOOKS) == 0:
            print(f"{step:7,} steps {mib():6.0f} MiB", flush=True)
    print(f"{steps:7,} steps {mib():6.0f} MiB", flush=True)


def main() -> None:
    """Train on one rank of a fake process group."""
    kind, *rest = sys.argv[1:]
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    with accelerate() if kind == "accelerated" else nullcontext():
        train(int(rest[0]) if rest else 10_000)


if __name__ == "__main__":
    main()
