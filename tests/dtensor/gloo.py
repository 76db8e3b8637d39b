"""Run a function on real ranks: processes that communicate by gloo."""

import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def on_ranks(run: Callable[[int, Path], None], ranks: int) -> None:
    """Call `run` in a process for each rank, with the rank and a folder that all ranks share."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_play, (run, ranks, Path(folder)), nprocs=ranks)


def _play(rank: int, run: Callable[[int, Path], None], ranks: int, folder: Path) -> None:
    dist.init_process_group(
        "gloo",
        init_method=(folder / "meeting-point").as_uri(),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=60),
    )
    torch.set_num_threads(1)
    run(rank, folder)
    dist.barrier()
    dist.destroy_process_group()
