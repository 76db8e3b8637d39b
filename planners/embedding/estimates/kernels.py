"""Runs the kernels that TorchRec creates for a rank's shards, on one device of this machine."""

import hashlib
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
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
from torchrec.modules.embedding_configs import PoolingType, data_type_to_sparse_type

from harness.contract import Prepared
from planners.embedding.estimates.device import Device
from planners.embedding.estimates.shard_work import Ints, LookupDistribution, ShardWork
from planners.embedding.tables.torchrec_objects import DATA_TYPES

_CACHED = EmbeddingComputeKernel.FUSED_UVM_CACHING.value
_MOST_FILLING = 200  # batches that fill a cache of rows


class _Lookup(NamedTuple):
    """A table-batched fbgemm kernel with its inputs; `weights` is None unless it is weighted.

    `drawn` has, for each feature, the rows of its table and the number of its indices.
    """

    kernel: Any
    indices: torch.Tensor
    offsets: torch.Tensor
    weights: torch.Tensor | None
    drawn: Sequence[tuple[int, int]]
    is_cached: bool


class RankKernels:
    """The kernels of one rank, with random inputs for one iteration.

    Kernels with a cache of rows get other rows in each iteration, and start with a full cache. With
    the same rows again, every lookup would find its row in the cache.
    """

    def __init__(
        self,
        shards: Sequence[ShardWork],
        device: Device,
        distribution: LookupDistribution,
        seed: int,
    ) -> None:
        self._device, self._distribution = device, distribution
        digest = hashlib.sha256(f"{seed} {shards}".encode()).hexdigest()
        self._rng = np.random.default_rng(int(digest[:15], 16))
        groups: defaultdict[tuple[str, str, bool], list[ShardWork]] = defaultdict(list)
        for shard in shards:
            groups[shard.group].append(shard)
        with device:
            self._lookups = [
                self._lookup(config, members)
                for members in groups.values()
                for config in group_tables([[*map(_table, members, range(len(members)))]])[0]
            ]
        self._outputs: list[torch.Tensor] = []
        self.forward()
        for _ in range(max(map(_batches_to_fill, self._lookups), default=0)):
            self._renewed_forward()
        self._gradients = [torch.rand_like(output) for output in self._outputs]

    def _lookup(self, config: GroupedEmbeddingConfig, shards: Sequence[ShardWork]) -> _Lookup:
        place = torch.device(self._device.kind)
        lengths, drawn = [], []
        for table in config.embedding_tables:
            shard = shards[int(table.name)]
            for mean in shard.lookups:
                lengths.append(self._lengths(mean, shard))
                drawn.append((shard.rows, int(lengths[-1].sum())))
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
        indices = self._draw(drawn)
        return _Lookup(
            _kernel(config, self._device.kind),
            indices.to(place),
            torch.from_numpy(offsets).to(place),
            torch.rand(len(indices), device=place) if config.is_weighted else None,
            drawn,
            any(shard.kernel == _CACHED for shard in shards),
        )

    def _draw(self, drawn: Sequence[tuple[int, int]]) -> torch.Tensor:
        """Return random indices, as many of each table as `drawn` has."""
        parts = [self._distribution.draw(rows, count, self._rng) for rows, count in drawn]
        return torch.from_numpy(np.concatenate(parts))

    def _lengths(self, mean: float, shard: ShardWork) -> Ints:
        """Return the random number of indices of each sample that reach the shard.

        The table's mean number is rounded up or down at random. For a row-wise shard, a binomially
        distributed part of these indices falls into the shard's rows.
        """
        of_table = mean / shard.share if shard.share else 0.0
        whole = np.floor(of_table + self._rng.random(shard.samples)).astype(np.int64)
        return whole if shard.row_parts == 1 else self._rng.binomial(whole, min(shard.share, 1.0))

    def forward(self) -> None:
        """Run the forward pass: look up rows and pool them."""
        self._outputs = [
            lookup.kernel(lookup.indices, lookup.offsets, lookup.weights)
            for lookup in self._lookups
        ]
        self._device.synchronize()

    def backward(self) -> None:
        """Run the backward pass of the last forward pass, which also updates the tables."""
        for output, gradient in zip(self._outputs, self._gradients, strict=True):
            output.backward(gradient)
        self._outputs = []
        self._device.synchronize()

    def both(self) -> None:
        """Run a forward and a backward pass."""
        self.forward()
        self.backward()

    def _renew(self) -> None:
        """Draw other rows for the kernels with a cache."""
        for lookup in self._lookups:
            if lookup.is_cached:
                lookup.indices.copy_(self._draw(lookup.drawn))
        self._device.synchronize()

    def _renewed_forward(self) -> None:
        self._renew()
        self.forward()

    def whole(self) -> dict[str, Prepared[None]]:
        """Return the call `both`, which runs a forward and a backward pass."""
        return {"both": Prepared(self.both, renew=self._renew)}

    def passes(self) -> dict[str, Prepared[None]]:
        """Return calls `forward` and `backward`; an untimed forward pass precedes each backward."""
        return {
            "forward": Prepared(self.forward, renew=self._renew),
            "backward": Prepared(self.backward, renew=self._renewed_forward),
        }


def _batches_to_fill(lookup: _Lookup) -> int:
    """Return how many batches about fill the cache of a kernel."""
    rows = len(lookup.kernel.lxu_cache_weights)
    return min(_MOST_FILLING, math.ceil(2 * rows / max(len(lookup.indices), 1)))


def _table(shard: ShardWork, number: int) -> ShardedEmbeddingTable:
    """Wrap a shard as a table that TorchRec can group; its name is the shard's index."""
    features = [f"{number}:{feature}" for feature in range(len(shard.lookups))]
    return ShardedEmbeddingTable(
        num_embeddings=shard.rows,
        embedding_dim=shard.columns,
        name=str(number),
        embedding_names=features,
        feature_names=features,
        data_type=DATA_TYPES[shard.dtype],
        pooling=PoolingType.SUM,
        is_weighted=shard.is_weighted,
        has_feature_processor=False,
        local_rows=shard.rows,
        local_cols=shard.columns,
        compute_kernel=EmbeddingComputeKernel(shard.kernel),
        weight_init_max=None,
        weight_init_min=None,
        fused_params={"optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "learning_rate": 0.01},
    )


def _kernel(config: GroupedEmbeddingConfig, device: str) -> Any:
    """Return the kernel that TorchRec's `BatchedFusedEmbeddingBag` creates for a group."""
    tables = config.embedding_tables
    compute, places = ComputeDevice.CPU, [EmbeddingLocation.HOST] * len(tables)
    if device == "cuda":
        compute = ComputeDevice.CUDA
        places = [compute_kernel_to_embedding_location(table.compute_kernel) for table in tables]
    precision = data_type_to_sparse_type(config.data_type)
    return SplitTableBatchedEmbeddingBagsCodegen(
        [
            (table.local_rows, table.local_cols, place, compute)
            for table, place in zip(tables, places, strict=True)
        ],
        feature_table_map=[n for n, table in enumerate(tables) for _ in table.feature_names],
        pooling_mode=PoolingMode.SUM,
        weights_precision=precision,
        cache_precision=precision,
        device=torch.device(device),
        **(config.fused_params or {}),
    )
