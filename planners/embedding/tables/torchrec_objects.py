"""Objects of torchrec that all its releases have alike, and what a plan says by them.

Releases from 1.2.0 on are driven by this module too, so it imports nothing that they lack.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import ParameterConstraints, ShardingOption, Topology
from torchrec.distributed.types import ShardingType
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from harness.contract import UsageError
from planners.embedding.tables.files import Table

# What torchrec's planner examples and TorchEasyRec reserve for everything but embeddings.
RESERVED_FRACTION = 0.15
KERNELS = (EmbeddingComputeKernel.FUSED.value, EmbeddingComputeKernel.FUSED_UVM_CACHING.value)
DATA_TYPES = {"fp32": DataType.FP32, "fp16": DataType.FP16, "bf16": DataType.BF16}


class ModelParallelSharder(EmbeddingBagCollectionSharder):
    """TorchRec's sharder without data parallelism, which none of the kernels here can do."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        """Return torchrec's sharding types but `data_parallel`, in its order."""
        return [
            sharding_type
            for sharding_type in super().sharding_types(compute_device_type)
            if sharding_type != ShardingType.DATA_PARALLEL.value
        ]


def embedding_bags(tables: Sequence[Table]) -> EmbeddingBagCollection:
    """Return a module of the tables on the meta device; raises UsageError for refused names."""
    try:
        return EmbeddingBagCollection(
            device=torch.device("meta"),
            tables=[
                EmbeddingBagConfig(
                    name=table.name,
                    num_embeddings=table.rows,
                    embedding_dim=table.dim,
                    data_type=DATA_TYPES[table.dtype],
                    feature_names=[f"{table.name}:{index}" for index in range(table.features)],
                )
                for table in tables
            ],
        )
    except KeyError as error:
        raise UsageError(_why_refused(tables, str(error.args[0]))) from None


def _why_refused(tables: Sequence[Table], said: str) -> str:
    """Say which table's name is one of torch's own, and what to do; else what torch `said`."""
    taken = dir(torch.nn.ModuleDict())
    name = next((table.name for table in tables if table.name in taken), None)
    if name is None:
        return f"A table's name is refused by torch: {said}."
    words = ", ".join(each for each in taken if each.isalnum())
    return (
        f"No table of a torchrec model can be called '{name}': torch.nn.ModuleDict, which holds "
        f"the tables, takes that name for itself. Rename it, in the file's column 'name' and in "
        f"the model, for example to '{name}_table'. Other words that it takes: {words}."
    )


def constraints_of(tables: Iterable[Table]) -> dict[str, ParameterConstraints]:
    """Return the constraints of tables: their pooling factors, and kernels of KERNELS alone."""
    return {
        table.name: ParameterConstraints(
            compute_kernels=list(KERNELS), pooling_factors=list(table.pooling_factors)
        )
        for table in tables
    }


def perf_by_rank(plan: Iterable[ShardingOption], topology: Topology) -> list[float]:
    """Return the milliseconds of each rank, summed as torchrec's perf model sums them."""
    perf = [0.0] * topology.world_size
    for option in plan:
        for shard in option.shards:
            perf[shard.rank] += shard.perf.total
    return perf


def plan_fingerprint(plan: Iterable[ShardingOption]) -> str:
    """Hash what a plan says about each table: sharding type, kernel, and every shard's place."""
    return fingerprint_of(said_by(option, option.fqn) for option in plan)


def said_by(option: ShardingOption, fqn: str) -> list[Any]:
    """Return what a plan says about a table, which is called `fqn`, as plain JSON types."""
    return [
        fqn,
        option.sharding_type,
        option.compute_kernel,
        [[shard.size, shard.offset, shard.rank] for shard in option.shards],
    ]


def fingerprint_of(said: Iterable[list[Any]]) -> str:
    """Hash what a plan says about its tables."""
    return hashlib.sha256(json.dumps(sorted(said)).encode()).hexdigest()[:16]
