"""Count the calls inside FSDP in a training step: python fsdp_calls.py fake|gloo"""

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh

from planners.dtensor.programs.training import fully_sharded, train
from planners.dtensor.programs.world import start_world

RANKS, LAYERS = 2, 3


def counted() -> Counter[str]:
    """Return the calls of the third step by function, of torch's FSDP alone."""
    torch.set_num_threads(1)
    model = fully_sharded(init_device_mesh("cpu", (RANKS,)), LAYERS)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.ones(2, 4, 64)
    calls: Counter[str] = Counter()

    def note(frame, event, _):
        if event == "call" and "/distributed/fsdp/" in frame.f_code.co_filename:
            calls[frame.f_code.co_qualname] += 1

    for step in range(3):
        if step == 2:
            sys.setprofile(note)
        train(model, optimizer, batch)
    sys.setprofile(None)
    return calls


def run(rank: int, meeting_point: str) -> None:
    dist.init_process_group("gloo", init_method=meeting_point, rank=rank, world_size=RANKS)
    calls = counted()
    if rank == 0:
        print(json.dumps(calls))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "fake":
        start_world(RANKS)
        print(json.dumps(counted()))
    else:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(run, ((Path(folder) / "meeting-point").as_uri(),), nprocs=RANKS)
