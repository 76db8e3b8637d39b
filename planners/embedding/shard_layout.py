"""The shards and kernels that DistributedModelParallel trains with, for each sharding type."""

from collections.abc import Sequence

import torch
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import Shard
from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets
from torchrec.distributed.types import ShardingType

from harness.registry import InfeasibleDecision


def check_kernel(table: str, sharding_type: str, kernel: str, compute_device: str) -> None:
    """Check that torchrec has a kernel to train a table with, sharded so, on such devices.

    Raises:
        InfeasibleDecision: it has not; says which kernels it has.
    """
    allowed = EmbeddingBagCollectionSharder().compute_kernels(sharding_type, compute_device)
    if kernel not in allowed:
        raise InfeasibleDecision(
            f"The kernel of table {table} must be one of {', '.join(allowed)}, as it is "
            f"{sharding_type} on {compute_device}, not '{kernel}'."
        )


def check_layout(
    table: str,
    sharding_type: str,
    shards: Sequence[Shard],
    size: tuple[int, int],
    world_size: int,
    local_world_size: int,
) -> None:
    """Check that shards are cut and placed as the sharding type asks for.

    Torchrec's sharded modules rely on it: they find the shard of an id by dividing its row by the
    rows of all shards but the last, and the rank of a shard by its position.

    Args:
        table: Its name, for errors.
        sharding_type: As torchrec calls it.
        shards: All shards of the table, each on one of the ranks.
        size: Rows and columns of the table.
        world_size: The number of ranks.
        local_world_size: The number of ranks of a host.

    Raises:
        InfeasibleDecision: they are not; says which shard, and what it must be.
    """
    cut = calculate_shard_sizes_and_offsets(
        torch.empty(size, device="meta"),
        world_size,
        local_world_size,
        sharding_type,
        col_wise_shard_dim=shards[0].size[1],
    )
    for number, (shard, rows_columns, corner) in enumerate(zip(shards, *cut, strict=False)):
        if [*shard.size] != rows_columns or [*shard.offset] != corner:
            raise InfeasibleDecision(
                f"Shard {number} of table {table}, which is {sharding_type}, must be "
                f"{_box(rows_columns, corner)}, not {_box(shard.size, shard.offset)}."
            )
    if len(shards) != len(cut[0]):
        raise InfeasibleDecision(
            f"Table {table}, which is {sharding_type}, must have {len(cut[0])} shards, "
            f"not {len(shards)}."
        )
    for number, shard in enumerate(shards):
        ranks = _ranks(sharding_type, shards, number, world_size, local_world_size)
        if shard.rank not in ranks:
            raise InfeasibleDecision(
                f"Shard {number} of table {table}, which is {sharding_type}, must be on rank "
                f"{ranks[0]}{f' to {ranks[-1]}' if len(ranks) > 1 else ''}, not {shard.rank}."
            )


def _ranks(
    sharding_type: str, shards: Sequence[Shard], number: int, world_size: int, local_world_size: int
) -> range:
    """Return the ranks that a shard may be on, given those of the shards before it."""
    if sharding_type == ShardingType.ROW_WISE.value:
        return range(number, number + 1)
    if sharding_type == ShardingType.TABLE_COLUMN_WISE.value:
        host = _first_of_host(shards[0], local_world_size)
        return range(host, host + local_world_size)
    if sharding_type in (ShardingType.TABLE_ROW_WISE.value, ShardingType.GRID_SHARD.value):
        position = number % local_world_size  # of the block of columns that the shard is part of
        rank = _first_of_host(shards[number - position], local_world_size) + position
        return range(rank, rank + 1)
    return range(world_size)


def _first_of_host(shard: Shard, local_world_size: int) -> int:
    assert shard.rank is not None
    return int(shard.rank) // local_world_size * local_world_size


def _box(size: Sequence[int], offset: Sequence[int]) -> str:
    return f"{size[0]} x {size[1]} at row {offset[0]}, column {offset[1]}"
