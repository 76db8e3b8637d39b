"""Splits TorchRec's storage estimate of shards into its terms."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import Shard, ShardingOption
from torchrec.distributed.planner.utils import build_sharder_data_map, sharder_name
from torchrec.distributed.types import PipelineType

from planners.embedding.memory.rank_bytes import (
    CACHED,
    INPUTS,
    OF_RANK,
    OPTIMIZER,
    OUTPUTS,
    PEAK,
    WEIGHTS,
    Terms,
)
from planners.embedding.memory.rank_model import OPTIMIZERS
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.search.unmade_shards import with_shards

# It counts inputs twice, and outputs only on request.
_PIPELINED: dict[str, Any] = {"pipeline_type": PipelineType.TRAIN_SPARSE_DIST}


def torchrec_terms(
    problem: EmbeddingProblem, plan: Iterable[ShardingOption], optimizer: str
) -> list[Terms]:
    """Return TorchRec's estimate for each rank of a plan, in bytes of HBM and host memory.

    Its estimator returns sums only. So each term is a difference of two settings.
    """
    found: list[Terms] = [{OF_RANK: {PEAK: 0}} for _ in problem.topology.devices]
    for option in plan:
        for rank, terms in _of_shards(problem, option, optimizer):
            held = found[rank].setdefault(option.sharding_type, {})
            for term, size in terms.items():
                held[term] = held.get(term, 0) + size
                found[rank][OF_RANK][PEAK] += size
    return found


def _of_shards(
    problem: EmbeddingProblem, option: ShardingOption, optimizer: str
) -> Iterator[tuple[int, dict[str, int]]]:
    """Yield the rank and the terms of each shard of a table."""
    weights = _estimated(problem, option, is_inference=True)
    default = _estimated(problem, option)
    trained = _estimated(problem, option, optimizer)
    pipelined = _estimated(problem, option, **_PIPELINED)
    at_peak = _estimated(problem, option, **_PIPELINED, run_embedding_at_peak_memory=True)
    for number, shard in enumerate(option.shards):
        outputs = at_peak[number] - pipelined[number]
        inputs = pipelined[number] - (default[number] - outputs)
        terms = {
            WEIGHTS: weights[number],
            OPTIMIZER: trained[number] - default[number],
            CACHED: default[number] - weights[number] - inputs - outputs,
            INPUTS: inputs,
            OUTPUTS: outputs,
        }
        yield int(shard.rank or 0), terms


def _estimated(
    problem: EmbeddingProblem, option: ShardingOption, optimizer: str = "", **settings: Any
) -> list[int]:
    """Return TorchRec's bytes of each shard of a table, with these settings of its estimator."""
    tensor = torch.empty(option.tensor.shape, dtype=option.tensor.dtype, device="meta")
    if optimizer:
        tensor._optimizer_classes = [OPTIMIZERS[optimizer]]
    copied = with_shards(option, [Shard(shard.size, shard.offset) for shard in option.shards])
    vars(copied)["_tensor"] = tensor
    estimator = EmbeddingStorageEstimator(
        topology=problem.topology, constraints=problem.constraints, **settings
    )
    sharders = {sharder_name(sharder.module_type): sharder for sharder in problem.sharders}
    estimator.estimate([copied], build_sharder_data_map(sharders))
    return [shard.storage.hbm + shard.storage.ddr for shard in copied.shards]
