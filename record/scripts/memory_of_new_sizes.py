"""Resident memory of an MLP whose batch has a new size in each step, with and without accelerate().

python record/scripts/memory_of_new_sizes.py accelerated|torch [STEPS]
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import nullcontext

import psutil
import torch
import torch.distributed as dist
from common import print_table
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

from shardbench import accelerate

RANKS, WIDTH, LOOKS = 8, 16, 4


def train(steps: int) -> Iterator[tuple[str, str]]:
    """Train, and yield the memory at the start and after each part of the steps."""
    layers = [torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.ReLU(), torch.nn.Linear(4 * WIDTH, WIDTH)]
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    mesh = init_device_mesh("cpu", (RANKS,))
    model = parallelize_module(torch.nn.Sequential(*layers), mesh, plan)
    for step in range(steps + 1):
        if step % (steps // LOOKS) == 0:
            gc.collect()
            yield f"{step:,}", f"{psutil.Process().memory_info().rss / 2**20:.0f} MiB"
        model(torch.ones(2 + step, WIDTH)).sum().backward()
        model.zero_grad()


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    with accelerate() if kind == "accelerated" else nullcontext():
        print_table(("steps", "memory"), train(int(rest[0]) if rest else 10_000), texts=0)
