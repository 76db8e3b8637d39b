"""Checks that the shards of a plan tile their tables, are on allowed ranks, and fit into memory.

All checks raise InfeasibleDecision; its message names the table, the shard or the rank. A table is
an option of torchrec or an entry of a plan file: it has a name, a sharding type and shards, and a
shard has a size and an offset in rows and columns, a rank, and its storage in bytes.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torchrec.distributed.planner.types import ShardingOption
from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets
from torchrec.distributed.types import ShardingType

from harness.contract import InfeasibleDecision

Size = tuple[int, int]
"""The rows and columns of a table."""


def check_plan(
    plan: Sequence[ShardingOption],
    tables: Collection[str],
    world_size: int,
    host_ranks: int,
    *usable: Sequence[int],
) -> None:
    """Check a plan of the `tables`, which are given by torchrec's `fqn`.

    The plan must place each table once and completely, on ranks that its sharding type allows, and
    within the `usable` bytes of HBM, DDR and SSD of each rank.
    """
    times = Counter(option.fqn for option in plan)
    expected = Counter(tables)
    if wrong := (times - expected) + (expected - times):
        raise InfeasibleDecision(
            f"The plan does not place each table once: {min(wrong).lstrip('.')}."
        )
    for option in plan:
        check_tiling(option, tuple(option.tensor.shape), world_size)
        check_ranks(option, world_size, host_ranks)
    check_memory([shard for option in plan for shard in option.shards], *usable)


def check_tiling(table: Any, size: Size, world_size: int) -> None:
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
    boxes.sort()
    for place, (top, left, bottom, right, number) in enumerate(boxes, start=1):
        if top < 0 or left < 0 or bottom > size[0] or right > size[1]:
            raise InfeasibleDecision(f"{fault}: shard {number} is not inside.")
        for following in range(place, len(boxes)):
            later_top, later_left, _, later_right, later = boxes[following]
            if later_top >= bottom:
                break  # the others begin further down, too
            if later_left < right and left < later_right:
                pair = sorted((number, later))
                raise InfeasibleDecision(f"{fault}: shards {pair[0]} and {pair[1]} overlap.")
        missing -= (bottom - top) * (right - left)
    if missing:
        raise InfeasibleDecision(f"{fault}: {missing:,} of its weights are in none.")


def check_cut(table: Any, size: Size, world_size: int, host_ranks: int) -> None:
    """Check that a table is cut as torchrec's sharded modules require, which also tiles it.

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


def check_ranks(table: Any, world_size: int, host_ranks: int) -> None:
    """Check that the sharding type allows the ranks of the shards, given earlier shards' ranks."""
    kind = table.sharding_type
    on_every_rank = (ShardingType.ROW_WISE.value, ShardingType.DATA_PARALLEL.value)
    by_host = (ShardingType.TABLE_ROW_WISE.value, ShardingType.GRID_SHARD.value)
    for number, shard in enumerate(table.shards):
        ranks = range(world_size)
        if kind in on_every_rank:
            ranks = range(number, number + 1)
        elif kind == ShardingType.TABLE_COLUMN_WISE.value:
            host = table.shards[0].rank // host_ranks * host_ranks
            ranks = range(host, host + host_ranks)
        elif kind in by_host:
            position = number % host_ranks  # in the shard's block of columns
            host = table.shards[number - position].rank // host_ranks * host_ranks
            ranks = range(host + position, host + position + 1)
        if shard.rank not in ranks:
            raise InfeasibleDecision(
                f"Shard {number} of table {table.name}, which is {kind}, must be "
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
