"""One rank of a world of equal ranks: collectives without other processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchrec.distributed.collective_utils import init_collective_validation

_all_to_all = dist.all_to_all_single


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
        # A TorchDispatchMode would see all-to-alls too, and slow down every other op.
        with mock.patch.object(dist, "all_to_all_single", _equal_all_to_all):
            yield
    finally:
        dist.destroy_process_group()


def _equal_all_to_all(
    output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002  # torch's own name
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
) -> Any:
    """Fill in the result of an all-to-all; other results are only numbers that nobody reads."""
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    own = _parts(input, input_split_sizes, ranks)[rank]
    for part in _parts(output, output_split_sizes, ranks):
        if part.shape == own.shape:
            part.copy_(own)
        else:  # pooled vectors of other ranks' tables
            part.zero_()
    # The fake group refuses an empty tensor with something to receive, so it gets nothing.
    return _all_to_all(output[:0], input[:0], [0] * ranks, [0] * ranks, group, async_op)


def _parts(tensor: torch.Tensor, sizes: list[int] | None, ranks: int) -> tuple[torch.Tensor, ...]:
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
