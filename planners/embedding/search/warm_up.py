"""Compilation ahead of the first search."""

from functools import cache

import numpy as np
import torch
from torch import nn
from torchrec.distributed.planner.enumerators import get_partition_by_type
from torchrec.distributed.planner.proposers import GreedyProposer
from torchrec.distributed.planner.types import Perf, Shard, ShardingOption, Storage
from torchrec.distributed.types import ShardingType

from planners.embedding.search.best_plan.near.moves import Moves
from planners.embedding.search.best_plan.near.search import NearSearch
from planners.embedding.search.best_plan.search import best_plan
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.same_plan.bin_proposer import BinProposer
from planners.embedding.search.same_plan.bin_proposer_2d import BinProposer2D
from planners.embedding.search.same_plan.partition import PartitionRules
from planners.embedding.search.same_plan.search import SamePlan
from planners.embedding.search.space import Devices, search_space


@cache
def warm_up() -> None:
    """Compile all that searches use, or load it where it has been compiled before.

    The first time ever takes a minute or more, after that a few seconds for a process; without
    this the first search of a process takes as much longer.
    """
    # Not to be halved, so that no proposal reaches the bound and the local search has to go on.
    tables = {"a": 1.0, "b": 1.3, "c": 1.7}
    space = search_space(
        [_option(*table, kind) for table in tables.items() for kind in ("table_wise", "row_wise")]
    )
    devices = Devices(storage=np.full((2, 3), 4), local_ranks=2, host_ranks=2)
    SamePlan([GreedyProposer(), BinProposer(), BinProposer2D()], PartitionRules())(space, devices)
    best_plan(space, devices, Deadline(0.05, clock=lambda: 0.0))
    shards = len(space.estimate)
    moves = Moves(np.zeros(shards, np.int64), np.ones(shards, np.int64))
    NearSearch(space, devices, lambda _: moves, Deadline(0.05, clock=lambda: 0.0)).search(1)


def _option(name: str, milliseconds: float, sharding_type: str) -> ShardingOption:
    """Return a table of two rows, whole or by rows, with the cost of a shard."""
    by_rows = sharding_type == ShardingType.ROW_WISE.value
    shards = [
        Shard(
            size=[1 if by_rows else 2, 1],
            offset=[row, 0],
            storage=Storage(hbm=1 if by_rows else 2, ddr=0),
            perf=Perf(fwd_compute=milliseconds, fwd_comms=0.0, bwd_compute=0.0, bwd_comms=0.0),
        )
        for row in range(2 if by_rows else 1)
    ]
    return ShardingOption(
        name=name,
        tensor=torch.empty(2, 1, device="meta"),
        module=("", nn.Module()),
        input_lengths=[1.0],
        batch_size=1,
        sharding_type=sharding_type,
        partition_by=get_partition_by_type(sharding_type),
        compute_kernel="fused",
        shards=shards,
    )


if __name__ == "__main__":
    warm_up()
