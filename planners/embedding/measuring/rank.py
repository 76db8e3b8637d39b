"""Plays one rank of a plan in this process, on TorchRec's sharded module: its bytes and its time.

The rank belongs to a world in which all ranks have equal inputs. A process that plays a rank must
not be used for anything else, because that changes its state.
"""

import gc
import logging
import math
import os
import statistics
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    SplitTableBatchedEmbeddingBagsCodegen,
)
from torch.distributed.optim import _apply_optimizer_in_backward as apply_optimizer_in_backward
from torch.profiler import ProfilerActivity, profile
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchrec.distributed.collective_utils import init_collective_validation
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner.planners import to_sharding_plan
from torchrec.distributed.planner.types import (
    KernelConfig,
    ShardingOption,
    TopologyFactory,
    TrainerConfig,
)
from torchrec.distributed.types import ShardingEnv, ShardingPlan
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from planners.embedding.decision import Plan
from planners.embedding.estimates.memory import (
    GRADIENTS,
    INPUTS,
    OF_RANK,
    OPTIMIZER,
    OPTIMIZERS,
    OUTPUTS,
    PEAK,
    WEIGHTS,
    Terms,
    group_of,
)
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.tables.files import Table
from planners.embedding.tables.torchrec_objects import embedding_model

_LEARNING_RATE = 0.01
_UNCOUNTED = 2  # first steps, after which nothing more stays allocated from step to step
_UNTIMED, _TIMED = 3, 10  # steps

_all_to_all = dist.all_to_all_single


@dataclass(frozen=True, slots=True)
class RankJob:
    """A rank of a plan to play, as picklable data; all tables have kernel `fused`."""

    tables: tuple[Table, ...]
    plan: ShardingPlan
    rank: int
    world_size: int
    local_world_size: int
    batch_size: int
    optimizer: str
    device: str
    seed: int = 0


def rank_jobs(
    problem: EmbeddingProblem, plan: Plan, optimizer: str, device: str, seed: int = 0
) -> dict[int, RankJob]:
    """Return the jobs that play a plan's ranks on one device, by rank.

    On a CPU, ranks with an empty shard are left out.
    """
    topology, options = problem.topology, in_order(problem, plan)
    empty = {
        shard.rank for option in options for shard in option.shards if not math.prod(shard.size)
    }
    # The shards of all ranks are placed on the first device of a host.
    one_device = TopologyFactory.create_topology(
        trainer_config=TrainerConfig(world_size=topology.world_size, local_world_size=1),
        kernel_config=KernelConfig(compute_device=device),
    )
    placed = to_sharding_plan(options, one_device)
    return {
        rank: RankJob(
            problem.tables,
            placed,
            rank,
            topology.world_size,
            topology.intra_group_size,
            problem.batch_size,
            optimizer,
            device,
            seed,
        )
        for rank in range(topology.world_size)
        if device == "cuda" or rank not in empty
    }


def in_order(problem: EmbeddingProblem, plan: Plan) -> list[ShardingOption]:
    """Return a plan's options in the order of the tables, and so of the module's groups."""
    order = {name: number for number, name in enumerate(problem.fqns)}
    return sorted(plan.options, key=lambda option: order[option.fqn])


def measure_rank(job: RankJob, *_report: object) -> Terms:
    """Return the bytes of a rank, and under `OF_RANK` the peak of a step."""
    os.environ["KINETO_LOG_LEVEL"] = "99"  # torch's profiler prints when it starts
    with _played(job) as inputs:
        gc.collect()
        with _allocations(job.device) as of_building:
            model = sharded_model(job)
            for _ in range(_UNCOUNTED):
                step(model, inputs)
            gc.collect()
        gc.disable()  # TorchRec's reference cycles would be freed at moments that vary
        with _allocations(job.device) as of_step:
            step(model, inputs)
        peak = sum(of_building) + max(accumulate(of_step, initial=0))
        return {**terms_of(model, inputs), OF_RANK: {PEAK: peak}}


def seconds_of_step(job: RankJob, *_report: object) -> float:
    """Return the median seconds of a rank's step: wall time on a GPU, else CPU time."""
    clock = time.perf_counter if job.device == "cuda" else time.process_time
    seconds = []
    gc.disable()
    with _played(job) as inputs:
        model = sharded_model(job)
        for _ in range(_UNTIMED + _TIMED):
            begun = clock()
            step(model, inputs)
            if job.device == "cuda":
                torch.cuda.synchronize()
            seconds.append(clock() - begun)
    return statistics.median(seconds[_UNTIMED:])


def sharded_model(job: RankJob) -> DistributedModelParallel:
    """Return the sharded tables of a rank, with their optimizers."""
    bags = embedding_model(job.tables)
    optimizer = OPTIMIZERS[job.optimizer].kind
    apply_optimizer_in_backward(optimizer, bags.parameters(), {"lr": _LEARNING_RATE})
    return DistributedModelParallel(
        bags,
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        device=torch.device(job.device, 0) if job.device == "cuda" else torch.device(job.device),
        plan=job.plan,
        sharders=[EmbeddingBagCollectionSharder()],
    )


def step(model: DistributedModelParallel, inputs: KeyedJaggedTensor) -> None:
    """Run a forward pass, the sum of its outputs, and a backward pass, which updates tables."""
    outputs = model(inputs).values()  # a training loop keeps them until the end of the step, too
    outputs.sum().backward()


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
    return batch.to(torch.device(job.device))


def terms_of(model: DistributedModelParallel, inputs: KeyedJaggedTensor) -> Terms:
    """Return the bytes of the tables, their inputs, outputs and gradients."""
    module: Any = model.module
    context = module.create_context()
    received = module.input_dist(context, inputs).wait().wait()
    outputs = module.compute(context, received)
    for output in outputs:
        output.retain_grad()
    module.output_dist(context, outputs).wait().values().sum().backward()
    terms: Terms = {}
    for kind, lookup, features, output in zip(
        module._sharding_types, module._lookups, received, outputs, strict=True
    ):
        kernels = [
            part
            for part in lookup.modules()
            if isinstance(part, SplitTableBatchedEmbeddingBagsCodegen)
        ]
        states = [state for kernel in kernels for state in kernel.split_optimizer_states()]
        terms[group_of(kind)] = {
            WEIGHTS: sum(w.nbytes for kernel in kernels for w in kernel.split_embedding_weights()),
            OPTIMIZER: sum(tensor.nbytes for state in states for tensor in state),
            INPUTS: features.values().nbytes + features.lengths().nbytes,
            OUTPUTS: output.nbytes,
            GRADIENTS: output.grad.nbytes,
        }
    return terms


@contextmanager
def _allocations(device: str) -> Iterator[list[int]]:
    """Return the bytes allocated in the `with` block, or minus those released, in their order.

    The list is complete after the block. On a CPU, torch's profiler reports every call of torch's
    allocator, also those inside kernels of fbgemm. Memory that a kernel takes elsewhere, such as a
    `std::vector`, is not seen. On CUDA the list has the peak and its release: the caching allocator
    has its own count, in multiples of 512 bytes; managed memory is not in it.
    """
    changes: list[int] = []
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        yield changes
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated()
        changes += [peak - before, torch.cuda.memory_allocated() - peak]
        return
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        yield changes
    waiting = list(profiler.profiler.kineto_results.experimental_event_tree())
    timed: list[tuple[int, int]] = []
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if event.name == "[memory]":
            timed.append((event.start_time_ns, event.extra_fields.alloc_size))
    changes += [size for _, size in sorted(timed, key=lambda change: change[0])]


@contextmanager
def _played(job: RankJob) -> Iterator[KeyedJaggedTensor]:
    """Play a rank of the job's world in the `with` block, with a batch of the rank.

    torch's fake process group allocates what a collective needs, and sends nothing. The results of
    an all-to-all are filled in here: another rank sends this rank the same as this rank sends to
    itself. So every tensor has the size that it has in a real world with these inputs.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # torch's, on names that TorchRec uses
    logging.disable(logging.WARNING)
    os.environ |= {
        "RANK": str(job.rank),
        "LOCAL_RANK": str(job.rank % job.local_world_size),
        "WORLD_SIZE": str(job.world_size),
        "LOCAL_WORLD_SIZE": str(job.local_world_size),
    }
    dist.init_process_group("fake", store=FakeStore(), rank=job.rank, world_size=job.world_size)
    # TorchRec broadcasts this setting once, which a fake group cannot; a group of one need not.
    init_collective_validation(dist.new_group([job.rank]))
    # A TorchDispatchMode would see all-to-alls too, and slow down every other op.
    with mock.patch.object(dist, "all_to_all_single", _equal_all_to_all):
        yield inputs_of(job)
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
    own = input.split(input_split_sizes or input.shape[0] // ranks)[rank]
    for part in output.split(output_split_sizes or output.shape[0] // ranks):
        if part.shape == own.shape:
            part.copy_(own)
        else:  # pooled vectors of other ranks' tables
            part.zero_()
    # The fake group refuses an empty tensor with something to receive, so it gets nothing.
    return _all_to_all(output[:0], input[:0], [0] * ranks, [0] * ranks, group, async_op)
