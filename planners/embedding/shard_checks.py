"""Checks of shards: that they tile their table, fit, and are cut and placed as can be trained."""

from collections.abc import Collection, Iterable, Sequence

import torch
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import Shard
from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets
from torchrec.distributed.types import ShardingType

from harness.contract import InfeasibleDecision


def check_names(placed: Sequence[str], expected: Collection[str]) -> None:
    """Check that a plan places each table once, by torchrec's `fqn`.

    Raises:
        InfeasibleDecision: it does not; says which table.
    """
    wrong = set(placed).symmetric_difference(expected) or {
        name for name in placed if placed.count(name) > 1
    }
    if wrong:
        raise InfeasibleDecision(
            f"The plan does not place each table once: {min(wrong).lstrip('.')}."
        )


def check_tiling(
    table: str,
    sharding_type: str,
    shards: Sequence[Shard],
    size: tuple[int, int],
    world_size: int,
) -> None:
    """Check that shards are on ranks and tile their table: inside, no two overlapping, no gap.

    With `data_parallel` each rank must have the whole table instead.

    Raises:
        InfeasibleDecision: they do not; says which shard of the table.
    """
    boxes = []
    for number, shard in enumerate(shards):
        if shard.rank is None or not 0 <= shard.rank < world_size:
            raise InfeasibleDecision(
                f"Shard {number} of table {table} is on rank {shard.rank} of {world_size}."
            )
        (row, column), (rows, columns) = shard.offset, shard.size
        if rows > 0 and columns > 0:
            boxes.append((row, column, row + rows, column + columns, number))
    if sharding_type == ShardingType.DATA_PARALLEL.value:
        if sorted(shard.rank for shard in shards) != list(range(world_size)) or any(
            box[:4] != (0, 0, *size) for box in boxes
        ):
            raise InfeasibleDecision(f"Table {table} is not whole on every rank.")
        return
    said = f"The shards of table {table} do not tile it"
    for top, left, bottom, right, number in boxes:
        if top < 0 or left < 0 or bottom > size[0] or right > size[1]:
            raise InfeasibleDecision(f"{said}: shard {number} is not inside.")
    overlap = _overlap(boxes)
    if overlap:
        raise InfeasibleDecision(f"{said}: shards {overlap[0]} and {overlap[1]} overlap.")
    missing = size[0] * size[1] - sum(
        (bottom - top) * (right - left) for top, left, bottom, right, _ in boxes
    )
    if missing:
        raise InfeasibleDecision(f"{said}: {missing:,} of its weights are in none.")


def _overlap(boxes: list[tuple[int, int, int, int, int]]) -> tuple[int, int] | None:
    """Return the numbers of two shards that overlap, the lower one first."""
    ordered = sorted(boxes)
    for index, (_, left, bottom, right, number) in enumerate(ordered):
        for top, other_left, _, other_right, other in ordered[index + 1 :]:
            if top >= bottom:
                break  # and so are all that come after it
            if left < other_right and other_left < right:
                return min(number, other), max(number, other)
    return None


def check_memory(shards: Sequence[Shard], *usable: Sequence[int]) -> None:
    """Check that ranks can hold their shards; `usable` has bytes of HBM, DDR, SSD of each rank.

    Raises:
        InfeasibleDecision: one cannot; says which, and of what memory.
    """
    for kind, capacity in zip(("HBM", "DDR", "SSD"), usable, strict=False):
        used = storage_of(shards, len(capacity), kind.lower())
        over = [part - whole for part, whole in zip(used, capacity, strict=True)]
        rank = max(range(len(over)), key=over.__getitem__)
        if over[rank] > 0:
            raise InfeasibleDecision(
                f"Rank {rank} needs {used[rank]} bytes of {kind} and has {capacity[rank]}."
            )


def storage_of(shards: Iterable[Shard], world_size: int, kind: str) -> list[int]:
    """Return the bytes of `hbm`, `ddr` or `ssd` that each rank needs for its shards."""
    used = [0] * world_size
    for shard in shards:
        used[shard.rank] += getattr(shard.storage, kind)
    return used


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
    check_ranks(table, sharding_type, shards, world_size, local_world_size)


def check_ranks(
    table: str,
    sharding_type: str,
    shards: Sequence[Shard],
    world_size: int,
    local_world_size: int,
) -> None:
    """Check that shards are on ranks that their sharding type allows; arguments as above.

    Raises:
        InfeasibleDecision: one is not; says which, and where it must be.
    """
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
