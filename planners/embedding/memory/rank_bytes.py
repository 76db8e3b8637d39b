"""Measures one rank of a plan: TorchRec's sharded module, built and stepped in this process."""

import gc
import logging
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
import torchrec.optim
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    DenseTableBatchedEmbeddingBagsCodegen,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from torch.distributed.optim import _apply_optimizer_in_backward as apply_optimizer_in_backward
from torchrec.distributed.batched_embedding_kernel import BatchedDenseEmbeddingBag
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.types import ShardingEnv, ShardingPlan
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from planners.embedding.memory.allocations import allocations
from planners.embedding.memory.one_rank_world import one_rank_world, parts_of, reduce_alone
from planners.embedding.tables.files import Table
from planners.embedding.tables.torchrec_objects import embedding_bags

OPTIMIZERS: Mapping[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "rowwise_adagrad": torchrec.optim.RowWiseAdagrad,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
}
WEIGHTS, OPTIMIZER, CACHED = "weights", "optimizer", "cached rows"
INPUTS, OUTPUTS, GRADIENTS = "inputs", "outputs", "gradients"
PEAK = "peak of a step"
OF_RANK = ""
"""In place of a sharding type, for the bytes of the whole rank."""

Terms = dict[str, dict[str, int]]
"""Bytes by sharding type, and by term."""

_DENSE = EmbeddingComputeKernel.DENSE.value
_LEARNING_RATE = 0.01
_WARM_UP = 2  # steps, after which nothing more stays allocated from step to step


@dataclass(frozen=True, slots=True)
class RankJob:
    """A rank of a plan to measure, as picklable data; `names` are of its sharding types."""

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

    def replicated(self) -> set[str]:
        """Return the names of the tables that every rank has whole."""
        tables: Any = self.plan.plan[""]
        return {name for name, found in tables.items() if found.compute_kernel == _DENSE}


def measure_rank(job: RankJob, *_report: object) -> Terms:
    """Return the bytes of a rank, and under `OF_RANK` the peak of a step.

    The process must not be used for anything else, because the measurement changes its state.
    """
    torch.set_num_threads(1)
    os.environ["KINETO_LOG_LEVEL"] = "99"  # torch's profiler prints when it starts
    warnings.simplefilter("ignore")  # torch's, on names that TorchRec uses
    logging.disable(logging.WARNING)
    with one_rank_world(job.rank, job.world_size, job.local_world_size):
        inputs = _inputs(job)
        gc.collect()
        with allocations(job.device) as built:
            model = _Model(job)
            for _ in range(_WARM_UP):
                model.step(inputs)
            gc.collect()
        gc.disable()  # TorchRec's reference cycles would be freed at moments that vary
        with allocations(job.device) as stepped:
            model.step(inputs)
        terms = {job.names[kind]: of_kind for kind, of_kind in model.terms(inputs).items()}
        return {**terms, OF_RANK: {PEAK: built.left + stepped.peak}}


class _Model:
    """The sharded tables of a rank with their optimizers."""

    def __init__(self, job: RankJob) -> None:
        bags = embedding_bags(job.tables)
        make, replicated = OPTIMIZERS[job.optimizer], job.replicated()
        inside = [bag.weight for name, bag in bags.embedding_bags.items() if name not in replicated]
        apply_optimizer_in_backward(make, inside, {"lr": _LEARNING_RATE})
        self._sharded = DistributedModelParallel(
            bags,
            env=ShardingEnv.from_process_group(dist.group.WORLD),
            device=torch.device(job.device),
            plan=job.plan,
            sharders=[EmbeddingBagCollectionSharder()],
        )
        reduce_alone(self._sharded)
        replicas = [
            part for part in parts_of(self._sharded) if isinstance(part, BatchedDenseEmbeddingBag)
        ]
        outside = [weights for part in replicas for weights in part.parameters()]
        self._outside = make(outside, lr=_LEARNING_RATE) if outside else None

    def step(self, inputs: KeyedJaggedTensor) -> None:
        """Run a forward pass, the sum of its outputs, a backward pass and the optimizer."""
        outputs = self._sharded(inputs).values()
        outputs.sum().backward()
        if self._outside is not None:
            self._outside.step()

    def terms(self, inputs: KeyedJaggedTensor) -> Terms:
        """Return the bytes of the tables, their inputs, outputs and gradients."""
        module: Any = self._sharded.module
        context = module.create_context()
        received = module.input_dist(context, inputs).wait().wait()
        outputs = module.compute(context, received)
        for output in outputs:
            output.retain_grad()
        module.output_dist(context, outputs).wait().values().sum().backward()
        found: Terms = {}
        for kind, lookup, features, output in zip(
            module._sharding_types, module._lookups, received, outputs, strict=True
        ):
            kept = Counter[str]()
            for part in parts_of(lookup):
                kept.update(self._kept(part))
            found[kind] = {
                **{term: kept[term] for term in (WEIGHTS, OPTIMIZER, CACHED)},
                INPUTS: _bytes([features.values(), features.lengths()]),
                OUTPUTS: _bytes([output]),
                GRADIENTS: kept[GRADIENTS] + _bytes([output.grad]),
            }
        return found

    def _kept(self, part: torch.nn.Module) -> dict[str, int]:
        """Return the bytes that a table-batched kernel keeps, by term; none of another module."""
        if isinstance(part, SplitTableBatchedEmbeddingBagsCodegen):
            caches = [value for name, value in part.named_buffers() if "lxu_cache" in name]
            return {
                WEIGHTS: _bytes(part.split_embedding_weights()),
                OPTIMIZER: _bytes(chain.from_iterable(part.split_optimizer_states())),
                CACHED: 0 if part.use_cpu else _bytes(caches),
            }
        if isinstance(part, DenseTableBatchedEmbeddingBagsCodegen):
            weights = [*part.parameters()]
            states = self._outside.state.values() if self._outside else ()
            return {
                WEIGHTS: _bytes(weights),
                OPTIMIZER: _bytes(one for state in states for one in state.values() if one.dim()),
                GRADIENTS: _bytes(one.grad for one in weights if one.grad is not None),
            }
        return {}


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _inputs(job: RankJob) -> KeyedJaggedTensor:
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
    return batch.to(torch.device(job.device))
