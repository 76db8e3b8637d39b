"""One rank of a world of equal ranks: collectives without other processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torchrec.distributed.collective_utils import init_collective_validation

_ALL_TO_ALL = "c10d::alltoall_base_"


@contextmanager
def one_rank_world(rank: int, world_size: int, local_world_size: int) -> Iterator[None]:
    """Run the `with` block as one rank of a world in which all ranks have equal inputs.

    torch's fake process group allocates what a collective needs, and sends nothing. The results of
    an all-to-all are filled in here: another rank sends this rank the same as this rank sends to
    itself. So every tensor has the size that it has in a real world with these inputs.
    """
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % local_world_size),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(local_world_size),
    }
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
    try:
        # TorchRec broadcasts this setting once, which a fake group cannot; a group of one need not.
        init_collective_validation(dist.new_group([rank]))
        with _EqualRanks():
            yield
    finally:
        dist.destroy_process_group()


class _EqualRanks(TorchDispatchMode):
    """Fills in the results of all-to-alls; other results are only numbers that nobody reads."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name != _ALL_TO_ALL:
            return func(*args, **(kwargs or {}))
        received, sent, boxed, received_sizes, sent_sizes, *more = args
        group = dist.ProcessGroup.unbox(boxed)
        ranks, rank = group.size(), group.rank()
        own = _parts(sent, sent_sizes, ranks)[rank]
        for part in _parts(received, received_sizes, ranks):
            if part.shape == own.shape:
                part.copy_(own)
            else:  # pooled vectors of other ranks' tables
                part.zero_()
        # The fake group refuses an empty tensor with something to receive, so it gets nothing.
        return func(received[:0], sent[:0], boxed, [0] * ranks, [0] * ranks, *more)


def _parts(tensor: torch.Tensor, sizes: list[int], ranks: int) -> tuple[torch.Tensor, ...]:
    parts: tuple[torch.Tensor, ...] = tensor.split(sizes or tensor.shape[0] // ranks)
    return parts


def parts_of(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yield a module and all its parts, also those that TorchRec hides from `modules()`."""
    yield module
    for part in module.children():
        yield from parts_of(part)
    for hidden in getattr(module, "_lookups", ()):
        yield from parts_of(hidden)


def reduce_alone(model: torch.nn.Module) -> None:
    """Let data-parallel modules reduce their gradients without waiting for other ranks."""
    for part in parts_of(model):
        if isinstance(part, DistributedDataParallel):
            part.register_comm_hook(None, _own_gradients)


def _own_gradients(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done
