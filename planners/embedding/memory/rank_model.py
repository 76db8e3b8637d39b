"""One rank of a plan: TorchRec's sharded module, built and stepped in this process."""

import gc
import logging
import statistics
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torchrec.optim
from torch.distributed.optim import _apply_optimizer_in_backward as apply_optimizer_in_backward
from torchrec.distributed.batched_embedding_kernel import BatchedDenseEmbeddingBag
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.types import ShardingEnv, ShardingPlan
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from planners.embedding.memory.one_rank_world import one_rank_world, parts_of, reduce_alone
from planners.embedding.tables.files import Table
from planners.embedding.tables.torchrec_objects import embedding_model

OPTIMIZERS: Mapping[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "rowwise_adagrad": torchrec.optim.RowWiseAdagrad,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
}
_DENSE = EmbeddingComputeKernel.DENSE.value
_LEARNING_RATE = 0.01
_WARM_UP, _STEPS = 3, 10


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
        return {name for name, found in tables.items() if found.compute_kernel == _DENSE}


class RankModel:
    """The sharded tables of a rank with their optimizers."""

    def __init__(self, job: RankJob) -> None:
        bags: Any = embedding_model(job.tables)
        make, replicated = OPTIMIZERS[job.optimizer], job.replicated()
        inside = [bag.weight for name, bag in bags.embedding_bags.items() if name not in replicated]
        apply_optimizer_in_backward(make, inside, {"lr": _LEARNING_RATE})
        self.sharded = DistributedModelParallel(
            bags,
            env=ShardingEnv.from_process_group(dist.group.WORLD),
            device=job.place,
            plan=job.plan,
            sharders=[EmbeddingBagCollectionSharder()],
        )
        reduce_alone(self.sharded)
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
    with one_rank_world(job.rank, job.world_size, job.local_world_size):
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
