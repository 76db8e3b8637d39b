"""Builds torchrec objects and describes plans, with any torchrec release from 1.2.0 on.

This module imports only names that all these releases have.
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

# Reserved for everything but embeddings, as in torchrec's planner examples and TorchEasyRec.
RESERVED_FRACTION = 0.15
KERNELS = (EmbeddingComputeKernel.FUSED.value, EmbeddingComputeKernel.FUSED_UVM_CACHING.value)
DATA_TYPES = {"fp32": DataType.FP32, "fp16": DataType.FP16, "bf16": DataType.BF16}
DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


class ModelParallelSharder(EmbeddingBagCollectionSharder):
    """Torchrec's sharder without `data_parallel`, which needs other kernels."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        """Return torchrec's sharding types except `data_parallel`, in its order."""
        return [
            sharding_type
            for sharding_type in super().sharding_types(compute_device_type)
            if sharding_type != ShardingType.DATA_PARALLEL.value
        ]


def embedding_bags(tables: Sequence[Table], device: str = "meta") -> EmbeddingBagCollection:
    """Return an EmbeddingBagCollection on a device; raises UsageError for bad names."""
    try:
        return EmbeddingBagCollection(
            device=torch.device(device),
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


def weights_digest(module: EmbeddingBagCollection) -> str:
    """Hash a module's weights; return "" where they are on the meta device and have no values."""
    weights = [weight.detach() for weight in module.state_dict().values()]
    if any(weight.is_meta for weight in weights):
        return ""
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(weight.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _why_refused(tables: Sequence[Table], error: str) -> str:
    """Return an error message with the table name that torch reserves, or else torch's error."""
    taken = dir(torch.nn.ModuleDict())
    name = next((table.name for table in tables if table.name in taken), None)
    if name is None:
        return f"Torch refuses a table's name: {error}."
    words = ", ".join(word for word in taken if word.isalnum())
    return (
        f"No table of a torchrec model can be called '{name}': torch.nn.ModuleDict, which holds "
        f"the tables, takes that name for itself. Rename it, in the file's column 'name' and in "
        f"the model, for example to '{name}_table'. Other words that it takes: {words}."
    )


def constraints_of(tables: Iterable[Table]) -> dict[str, ParameterConstraints]:
    """Return constraints by table name: the table's pooling factors, and the kernels KERNELS."""
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
    """Return a hash of each table's sharding type, kernel and shards (size, offset, rank)."""
    return fingerprint_of(description_of(option, option.fqn) for option in plan)


def description_of(option: ShardingOption, fqn: str) -> list[Any]:
    """Describe a table's option and ranks as plain JSON types, under the name `fqn`."""
    return [
        fqn,
        option.sharding_type,
        option.compute_kernel,
        [[shard.size, shard.offset, shard.rank] for shard in option.shards],
    ]


def fingerprint_of(descriptions: Iterable[list[Any]]) -> str:
    """Return a hash of the tables' descriptions, independent of their order."""
    return hashlib.sha256(json.dumps(sorted(descriptions)).encode()).hexdigest()[:16]
