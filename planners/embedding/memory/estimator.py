"""A storage estimator for TorchRec's planner that knows the memory of a whole step."""

import math
from typing import Any

from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import SharderDataMap, ShardingOption

from planners.embedding.memory.shard_bytes import COLUMNS, OPTIMIZERS, TypeBytes, step_peak

_KERNEL = "fused"


class StepStorageEstimator(EmbeddingStorageEstimator):
    """TorchRec's storage estimate, or the peak of a step where that is more.

    TorchRec counts weights, optimizer, inputs and the vectors looked up, once each. A step also has
    gradients, copies around collectives, and the vectors of other ranks' tables. A shard's share of
    those is estimated as if each rank had a shard like it. Only kernel `fused` is changed.
    """

    looks_at_one_shard = True

    def estimate(
        self, sharding_options: list[ShardingOption], sharder_data_map: SharderDataMap
    ) -> None:
        """Set the storage of all shards."""
        super().estimate(sharding_options, sharder_data_map)
        for option in sharding_options:
            params = sharder_data_map[option.module_type_key].fused_params
            optimizer = _optimizer_of(option, params)
            if option.compute_kernel != _KERNEL or not option.is_pooled or optimizer is None:
                continue
            for shard in option.shards:
                if shard.storage is not None and math.prod(shard.size):
                    peak = round(self._peak(option, shard.size, optimizer))
                    shard.storage.hbm = max(shard.storage.hbm, peak)

    def _peak(self, option: ShardingOption, size: list[int], optimizer: str) -> float:
        kind, topology = option.sharding_type, self._topology
        group = TypeBytes.of(kind, topology)
        cuts = math.ceil(option.tensor.shape[1] / size[1]) if kind in COLUMNS else 1
        group.add_table(option, topology, cuts)
        group.add_shard(option, size, topology, optimizer)
        if group.exchanges:
            others = topology.world_size // (group.ranks_of_host if group.reduces else 1)
            group.outputs *= others / cuts
            group.senders = others
        group.is_permuted = cuts > 1 and group.exchanges
        return step_peak([group])


def _optimizer_of(option: ShardingOption, fused_params: dict[str, Any]) -> str | None:
    """Return the name of a table's optimizer; None for one that is not known here."""
    attached = getattr(option.tensor, "_optimizer_classes", None)
    fused = fused_params.get("optimizer", EmbOptimType.EXACT_SGD)
    for name, optimizer in OPTIMIZERS.items():
        if optimizer.kind is attached[0] if attached else optimizer.fused == fused:
            return name
    return None
