"""Checks that the shards of a plan tile their tables, are on allowed ranks, and fit into memory.

All checks raise InfeasibleDecision; its message names the table, the shard or the rank.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets
from torchrec.distributed.types import ShardingType

from harness.contract import InfeasibleDecision

Size = tuple[int, int]
"""The rows and columns of a table."""


PlacedTable = Any
"""An option of torchrec or a table of a plan file, with name, sharding type and shards.

A shard has a size and an offset in rows and columns, a rank, and its storage in bytes.
"""


def check_names(placed: Sequence[str], expected: Collection[str]) -> None:
    """Check that a plan places each table (torchrec's `fqn`) exactly once."""
    wrong = set(placed).symmetric_difference(expected) or {
        name for name, times in Counter(placed).items() if times > 1
    }
    if wrong:
        raise InfeasibleDecision(
            f"The plan does not place each table once: {min(wrong).lstrip('.')}."
        )


def check_tiling(table: PlacedTable, size: Size, world_size: int) -> None:
    """Check that shards on ranks of the world tile the table; `data_parallel` ones copy it."""
    boxes = []
    for number, shard in enumerate(table.shards):
        if shard.rank is None or not 0 <= shard.rank < world_size:
            raise InfeasibleDecision(
                f"Shard {number} of table {table.name} is on rank {shard.rank} of {world_size}."
            )
        (top, left), (rows, columns) = shard.offset, shard.size
        if rows > 0 and columns > 0:
            boxes.append((top, left, top + rows, left + columns, number))
    if table.sharding_type == ShardingType.DATA_PARALLEL.value:
        ranks = sorted(shard.rank for shard in table.shards)
        if ranks != list(range(world_size)) or any(box[:4] != (0, 0, *size) for box in boxes):
            raise InfeasibleDecision(f"Table {table.name} is not whole on every rank.")
        return
    fault = f"The shards of table {table.name} do not tile it"
    missing = size[0] * size[1]
    for top, left, bottom, right, number in boxes:
        if top < 0 or left < 0 or bottom > size[0] or right > size[1]:
            raise InfeasibleDecision(f"{fault}: shard {number} is not inside.")
        missing -= (bottom - top) * (right - left)
    if overlap := _overlap(boxes):
        raise InfeasibleDecision(f"{fault}: shards {overlap[0]} and {overlap[1]} overlap.")
    if missing:
        raise InfeasibleDecision(f"{fault}: {missing:,} of its weights are in none.")


def _overlap(boxes: list[tuple[int, int, int, int, int]]) -> tuple[int, int] | None:
    """Return the numbers of two overlapping shards, the lower one first, or None."""
    ordered = sorted(boxes)
    for index, (_, left, bottom, right, number) in enumerate(ordered):
        for top, other_left, _, other_right, other in ordered[index + 1 :]:
            if top >= bottom:
                break  # all later boxes begin further down, too
            if left < other_right and other_left < right:
                return min(number, other), max(number, other)
    return None


def check_cut(table: PlacedTable, size: Size, world_size: int, host_ranks: int) -> None:
    """Check that a table is cut as torchrec's sharded modules require.

    Those modules compute the shard of a row by division, since all shards but the last have the
    same number of rows.
    """
    sizes, offsets = calculate_shard_sizes_and_offsets(
        torch.empty(size, device="meta"),
        world_size,
        host_ranks,
        table.sharding_type,
        col_wise_shard_dim=table.shards[0].size[1],
    )
    for number, (shard, *box) in enumerate(zip(table.shards, sizes, offsets, strict=False)):
        if [[*shard.size], [*shard.offset]] != box:
            raise InfeasibleDecision(
                f"Shard {number} of table {table.name}, which is {table.sharding_type}, must be "
                f"{_box(*box)}, not {_box(shard.size, shard.offset)}."
            )
    if len(table.shards) != len(sizes):
        raise InfeasibleDecision(
            f"Table {table.name}, which is {table.sharding_type}, must have {len(sizes)} shards, "
            f"not {len(table.shards)}."
        )


def _box(size: Sequence[int], offset: Sequence[int]) -> str:
    return f"{size[0]} x {size[1]} at row {offset[0]}, column {offset[1]}"


def check_ranks(table: PlacedTable, world_size: int, host_ranks: int) -> None:
    """Check that the sharding type allows the ranks of the shards, given earlier shards' ranks."""
    by_host = (ShardingType.TABLE_ROW_WISE.value, ShardingType.GRID_SHARD.value)
    for number, shard in enumerate(table.shards):
        ranks = range(world_size)
        if table.sharding_type == ShardingType.ROW_WISE.value:
            ranks = range(number, number + 1)
        elif table.sharding_type == ShardingType.TABLE_COLUMN_WISE.value:
            host = table.shards[0].rank // host_ranks * host_ranks
            ranks = range(host, host + host_ranks)
        elif table.sharding_type in by_host:
            position = number % host_ranks  # in the shard's block of columns
            host = table.shards[number - position].rank // host_ranks * host_ranks
            ranks = range(host + position, host + position + 1)
        if shard.rank not in ranks:
            raise InfeasibleDecision(
                f"Shard {number} of table {table.name}, which is {table.sharding_type}, must be "
                f"on rank {ranks[0]}{f' to {ranks[-1]}' if len(ranks) > 1 else ''}, "
                f"not {shard.rank}."
            )


def check_memory(shards: Sequence[Any], *usable: Sequence[int]) -> None:
    """Check that each rank has enough memory; `usable` has bytes by rank for HBM, DDR, SSD."""
    for kind, capacity in zip(("HBM", "DDR", "SSD"), usable, strict=False):
        used = [0] * len(capacity)
        for shard in shards:
            used[shard.rank] += getattr(shard.storage, kind.lower())
        over = [part - whole for part, whole in zip(used, capacity, strict=True)]
        rank = max(range(len(over)), key=over.__getitem__)
        if over[rank] > 0:
            raise InfeasibleDecision(
                f"Rank {rank} needs {used[rank]} bytes of {kind} and has {capacity[rank]}."
            )
