"""The collectives of a plan: the bytes that a rank sends, and how long they take on real links."""

import os
from collections.abc import Iterable

from torchrec.distributed.planner.types import ShardingOption, Topology
from torchrec.distributed.types import ShardingType

_FORWARD = {
    ShardingType.ROW_WISE.value: "reduce-scatter",
    ShardingType.TABLE_ROW_WISE.value: "reduce-scatter",
    ShardingType.GRID_SHARD.value: "reduce-scatter",
}
_BACKWARD = {"reduce-scatter": "all-gather", "all-to-all": "all-to-all"}


def bytes_sent(plan: Iterable[ShardingOption], topology: Topology) -> dict[str, float]:
    """Return the bytes of pooled vectors of all ranks, by collective, of one iteration.

    Outputs go by all-to-all where a table is whole or cut by columns and by reduce-scatter where it
    is cut by rows; gradients come back by all-to-all and all-gather. Each is one rank's mean.
    """
    sent: dict[str, float] = {}
    for option in plan:
        item = option.tensor.element_size()
        samples = option.batch_size * topology.world_size * len(option.input_lengths)
        for shard in option.shards:
            size = samples * shard.size[1] * item / topology.world_size
            forward = _FORWARD.get(option.sharding_type, "all-to-all")
            for name in (forward, _BACKWARD[forward]):
                sent[name] = sent.get(name, 0.0) + size
    return sent


def is_one_of_many() -> bool:
    """Whether this process was started beside others, as torchrun does."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1
