"""The kernels that TorchRec makes of a rank's shards, run on one device of this machine."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from torchrec.distributed.embedding_sharding import group_tables
from torchrec.distributed.embedding_types import (
    EmbeddingComputeKernel,
    GroupedEmbeddingConfig,
    ShardedEmbeddingTable,
    compute_kernel_to_embedding_location,
)
from torchrec.modules.embedding_configs import DataType, PoolingType

from harness.contract import Prepared
from planners.embedding.estimates.device import Device, SharedTables
from planners.embedding.estimates.lookup_distributions import LookupDistribution
from planners.embedding.estimates.shard_work import ShardWork

CPU_KERNEL = EmbeddingComputeKernel.FUSED.value
"""The kernel that fbgemm has on a CPU; cached tables and managed memory need CUDA."""

OPTIMIZER = EmbOptimType.EXACT_ROWWISE_ADAGRAD

_DATA_TYPES = {"float32": DataType.FP32, "float16": DataType.FP16, "bfloat16": DataType.BF16}
_PRECISIONS = {DataType.FP32: SparseType.FP32, DataType.FP16: SparseType.FP16}


class RankKernels:
    """The kernels of one rank with inputs of one iteration."""

    def __init__(
        self,
        shards: Sequence[ShardWork],
        device: Device,
        distribution: LookupDistribution,
        seed: int,
    ) -> None:
        self._device = device
        device.begin_rank()
        rng = np.random.default_rng(_seed_of(shards, seed))
        groups: dict[tuple[str, str, bool], list[ShardWork]] = {}
        for shard in shards:
            groups.setdefault(shard.group, []).append(shard)
        self._groups = [
            _Group(config, members, device, distribution, rng)
            for members in groups.values()
            for config in group_tables([[_sharded(shard, n) for n, shard in enumerate(members)]])[0]
        ]
        self._outputs: list[torch.Tensor] = []
        self.forward()
        self._gradients = [torch.rand_like(output) for output in self._outputs]

    def forward(self) -> None:
        """Look up and pool."""
        self._outputs = [group.forward() for group in self._groups]
        self._device.synchronize()

    def backward(self) -> None:
        """Update the tables by the gradients of the last forward pass."""
        for output, gradient in zip(self._outputs, self._gradients, strict=True):
            output.backward(gradient)
        self._outputs = []
        self._device.synchronize()

    def both(self) -> None:
        """Do a forward and a backward pass."""
        self.forward()
        self.backward()

    def whole(self) -> dict[str, Prepared[None]]:
        """Return both passes as one call."""
        return {"both": Prepared(self.both)}

    def passes(self) -> dict[str, Prepared[None]]:
        """Return the two passes apart; a forward pass that is not timed precedes the backward."""
        return {
            "forward": Prepared(self.forward),
            "backward": Prepared(self.backward, renew=self.forward),
        }


def _seed_of(shards: Sequence[ShardWork], seed: int) -> int:
    return int(hashlib.sha256(f"{seed} {shards}".encode()).hexdigest()[:15], 16)


class _Group:
    """One table-batched kernel with its inputs."""

    def __init__(
        self,
        config: GroupedEmbeddingConfig,
        shards: Sequence[ShardWork],
        device: Device,
        distribution: LookupDistribution,
        rng: np.random.Generator,
    ) -> None:
        members = [shards[int(table.name)] for table in config.embedding_tables]
        self._kernel = _kernel(config, members, device)
        lengths, values = [], []
        for shard in members:
            for mean in shard.lookups:
                length = _lengths(mean, shard, rng)
                lengths.append(length)
                values.append(distribution.draw(shard.rows, int(length.sum()), rng))
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
        place = torch.device(device.kind)
        self._indices = torch.from_numpy(np.concatenate(values)).to(place)
        self._offsets = torch.from_numpy(offsets).to(place)
        self._weights = torch.rand(len(self._indices), device=place) if config.is_weighted else None

    def forward(self) -> torch.Tensor:
        """Look up and pool."""
        return self._kernel(self._indices, self._offsets, self._weights)


def _lengths(
    mean: float, shard: ShardWork, rng: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the number of indices of each sample: the mean, rounded at random.

    For a row-wise shard it is the number of the table's indices that fall into its rows.
    """
    if shard.row_parts == 1:
        return np.floor(mean + rng.random(shard.samples)).astype(np.int64)
    if shard.share == 0:
        return np.zeros(shard.samples, np.int64)
    whole = np.floor(mean / shard.share + rng.random(shard.samples)).astype(np.int64)
    return rng.binomial(whole, min(shard.share, 1.0))


def _sharded(shard: ShardWork, number: int) -> ShardedEmbeddingTable:
    """Return a table for TorchRec to group, with its number as name."""
    features = [f"{number}:{feature}" for feature in range(len(shard.lookups))]
    return ShardedEmbeddingTable(
        num_embeddings=shard.rows,
        embedding_dim=shard.columns,
        name=str(number),
        embedding_names=features,
        feature_names=features,
        data_type=_DATA_TYPES[shard.dtype],
        pooling=PoolingType.SUM,
        is_weighted=shard.is_weighted,
        has_feature_processor=False,
        local_rows=shard.rows,
        local_cols=shard.columns,
        compute_kernel=EmbeddingComputeKernel(shard.kernel),
        weight_init_max=None,
        weight_init_min=None,
        fused_params={"optimizer": OPTIMIZER, "learning_rate": 0.01},
    )


def _kernel(config: GroupedEmbeddingConfig, shards: Sequence[ShardWork], device: Device) -> Any:
    """Return the kernel that TorchRec's `BatchedFusedEmbeddingBag` makes of a group."""
    on_cuda = device.kind == "cuda"
    specs = [
        (
            shard.rows,
            shard.columns,
            compute_kernel_to_embedding_location(EmbeddingComputeKernel(shard.kernel))
            if on_cuda
            else EmbeddingLocation.HOST,
            ComputeDevice.CUDA if on_cuda else ComputeDevice.CPU,
        )
        for shard in shards
    ]
    precision = _PRECISIONS.get(config.data_type, SparseType.BF16)
    tables = [number for number, shard in enumerate(shards) for _ in shard.lookups]
    with SharedTables(device):
        return SplitTableBatchedEmbeddingBagsCodegen(
            specs,
            feature_table_map=tables,
            pooling_mode=PoolingMode.SUM,
            weights_precision=precision,
            cache_precision=precision,
            device=torch.device(device.kind),
            **(config.fused_params or {}),
        )
