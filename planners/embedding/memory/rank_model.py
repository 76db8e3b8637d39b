"""One rank of a plan: TorchRec's sharded module, built and stepped in this process."""

import gc
import logging
import os
import statistics
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.optim import _apply_optimizer_in_backward as apply_optimizer_in_backward
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchrec.distributed.batched_embedding_kernel import BatchedDenseEmbeddingBag
from torchrec.distributed.collective_utils import init_collective_validation
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.types import ShardingEnv, ShardingPlan
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from planners.embedding.memory.shard_bytes import OPTIMIZERS
from planners.embedding.tables.files import Table
from planners.embedding.tables.torchrec_objects import embedding_model

_DENSE = EmbeddingComputeKernel.DENSE.value
_LEARNING_RATE = 0.01
_WARM_UP, _STEPS = 3, 10

_all_to_all = dist.all_to_all_single


@dataclass(frozen=True, slots=True)
class RankJob:
    """A rank of a plan to play, as picklable data; `names` are of its sharding types."""

    tables: tuple[Table, ...]
    plan: ShardingPlan
    rank: int
    world_size: int
    local_world_size: int
    batch_size: int
    optimizer: str
    device: str
    names: dict[str, str]
    seed: int = 0

    @property
    def place(self) -> torch.device:
        """The device; all ranks are played on the same one."""
        return torch.device(self.device, 0) if self.device == "cuda" else torch.device(self.device)

    def replicated(self) -> set[str]:
        """Return the names of the tables that every rank has whole."""
        tables: Any = self.plan.plan[""]
        return {name for name, table in tables.items() if table.compute_kernel == _DENSE}


class RankModel:
    """The sharded tables of a rank with their optimizers."""

    def __init__(self, job: RankJob) -> None:
        bags: Any = embedding_model(job.tables)
        make, replicated = OPTIMIZERS[job.optimizer].kind, job.replicated()
        inside = [bag.weight for name, bag in bags.embedding_bags.items() if name not in replicated]
        apply_optimizer_in_backward(make, inside, {"lr": _LEARNING_RATE})
        self.sharded = DistributedModelParallel(
            bags,
            env=ShardingEnv.from_process_group(dist.group.WORLD),
            device=job.place,
            plan=job.plan,
            sharders=[EmbeddingBagCollectionSharder()],
        )
        _reduce_alone(self.sharded)
        replicas = [
            part for part in parts_of(self.sharded) if isinstance(part, BatchedDenseEmbeddingBag)
        ]
        outside = [weights for part in replicas for weights in part.parameters()]
        self.outside = make(outside, lr=_LEARNING_RATE) if outside else None

    def step(self, inputs: KeyedJaggedTensor) -> None:
        """Run a forward pass, the sum of its outputs, a backward pass and the optimizer."""
        outputs = self.sharded(inputs).values()
        outputs.sum().backward()
        if self.outside is not None:
            self.outside.step()


def inputs_of(job: RankJob) -> KeyedJaggedTensor:
    """Return a batch of a rank, with the mean number of indices that each feature should have."""
    random = torch.Generator().manual_seed(job.seed)
    keys, lengths, values = [], [], []
    for table in job.tables:
        for number, mean in enumerate(table.pooling_factors):
            keys.append(f"{table.name}:{number}")
            ends = (torch.arange(job.batch_size + 1, dtype=torch.float64) * mean).floor()
            lengths.append(ends.diff().long())
            count = int(lengths[-1].sum())
            values.append(torch.randint(table.rows, (count,), generator=random))
    batch = KeyedJaggedTensor(keys, torch.cat(values), lengths=torch.cat(lengths))
    return batch.to(job.place)


@contextmanager
def played(job: RankJob) -> Iterator[KeyedJaggedTensor]:
    """Play a rank of the job's world in the `with` block, with a batch of the rank.

    The process must not be used for anything else, because this changes its state.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # torch's, on names that TorchRec uses
    logging.disable(logging.WARNING)
    with _one_rank_world(job.rank, job.world_size, job.local_world_size):
        yield inputs_of(job)


def seconds_of_step(job: RankJob, *_report: object) -> float:
    """Return the median seconds of a rank's step: wall time on a GPU, else CPU time."""
    clock = time.perf_counter if job.device == "cuda" else time.process_time
    seconds = []
    gc.disable()
    with played(job) as batch:
        model = RankModel(job)
        for _ in range(_WARM_UP + _STEPS):
            begun = clock()
            model.step(batch)
            if job.device == "cuda":
                torch.cuda.synchronize()
            seconds.append(clock() - begun)
    return statistics.median(seconds[_WARM_UP:])


@contextmanager
def _one_rank_world(rank: int, world_size: int, local_world_size: int) -> Iterator[None]:
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


def _reduce_alone(model: torch.nn.Module) -> None:
    """Let data-parallel modules reduce their gradients without waiting for other ranks."""
    for part in parts_of(model):
        if isinstance(part, DistributedDataParallel):
            part.register_comm_hook(None, _own_gradients)


def _own_gradients(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done
