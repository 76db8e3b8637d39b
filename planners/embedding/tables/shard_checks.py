"""Checks that shards tile their table, fit into memory, and can be trained as cut and placed.

All checks raise InfeasibleDecision; its message names the table, the shard or the rank.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import torch
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import Shard
from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets
from torchrec.distributed.types import ShardingType

from harness.contract import InfeasibleDecision


class ShardedTable(NamedTuple):
    """A table of `size` rows and columns, with its shards."""

    name: str
    sharding_type: str
    shards: Sequence[Shard]
    size: tuple[int, int]

    def check_tiling(self, world_size: int) -> None:
        """Check that shards on valid ranks tile the table, or copy it to all if `data_parallel`."""
        boxes = []
        for number, shard in enumerate(self.shards):
            if shard.rank is None or not 0 <= shard.rank < world_size:
                raise InfeasibleDecision(
                    f"Shard {number} of table {self.name} is on rank {shard.rank} of {world_size}."
                )
            (top, left), (rows, columns) = shard.offset, shard.size
            if rows > 0 and columns > 0:
                boxes.append((top, left, top + rows, left + columns, number))
        if self.sharding_type == ShardingType.DATA_PARALLEL.value:
            if sorted(shard.rank for shard in self.shards) != list(range(world_size)) or any(
                box[:4] != (0, 0, *self.size) for box in boxes
            ):
                raise InfeasibleDecision(f"Table {self.name} is not whole on every rank.")
            return
        fault = f"The shards of table {self.name} do not tile it"
        missing = self.size[0] * self.size[1]
        for top, left, bottom, right, number in boxes:
            if top < 0 or left < 0 or bottom > self.size[0] or right > self.size[1]:
                raise InfeasibleDecision(f"{fault}: shard {number} is not inside.")
            missing -= (bottom - top) * (right - left)
        if overlap := _overlap(boxes):
            raise InfeasibleDecision(f"{fault}: shards {overlap[0]} and {overlap[1]} overlap.")
        if missing:
            raise InfeasibleDecision(f"{fault}: {missing:,} of its weights are in none.")

    def check_kernel(self, kernel: str, compute_device: str) -> None:
        """Check that torchrec can train the sharding type with this kernel on this device type."""
        allowed = EmbeddingBagCollectionSharder().compute_kernels(
            self.sharding_type, compute_device
        )
        if kernel not in allowed:
            raise InfeasibleDecision(
                f"The kernel of table {self.name} must be one of {', '.join(allowed)}, as it is "
                f"{self.sharding_type} on {compute_device}, not '{kernel}'."
            )

    def check_layout(self, world_size: int, host_ranks: int) -> None:
        """Check that shards are cut and placed as torchrec's sharded modules require.

        Those modules compute the shard of a row by division, since all shards but the last have the
        same number of rows. They take the rank of a shard from its position.
        """
        sizes, offsets = calculate_shard_sizes_and_offsets(
            torch.empty(self.size, device="meta"),
            world_size,
            host_ranks,
            self.sharding_type,
            col_wise_shard_dim=self.shards[0].size[1],
        )
        for number, (shard, *box) in enumerate(zip(self.shards, sizes, offsets, strict=False)):
            if [[*shard.size], [*shard.offset]] != box:
                raise InfeasibleDecision(
                    f"Shard {number} of table {self.name}, which is {self.sharding_type}, must be "
                    f"{_box(*box)}, not {_box(shard.size, shard.offset)}."
                )
        if len(self.shards) != len(sizes):
            raise InfeasibleDecision(
                f"Table {self.name}, which is {self.sharding_type}, must have {len(sizes)} shards, "
                f"not {len(self.shards)}."
            )
        self.check_ranks(world_size, host_ranks)

    def check_ranks(self, world_size: int, host_ranks: int) -> None:
        """Check that the sharding type allows the ranks of the shards."""
        for number, shard in enumerate(self.shards):
            ranks = self._ranks(number, world_size, host_ranks)
            if shard.rank not in ranks:
                raise InfeasibleDecision(
                    f"Shard {number} of table {self.name}, which is {self.sharding_type}, must be "
                    f"on rank {ranks[0]}{f' to {ranks[-1]}' if len(ranks) > 1 else ''}, "
                    f"not {shard.rank}."
                )

    def _ranks(self, number: int, world_size: int, host_ranks: int) -> range:
        """Return the ranks allowed for shard `number`, given the ranks of earlier shards."""
        if self.sharding_type == ShardingType.ROW_WISE.value:
            return range(number, number + 1)
        if self.sharding_type == ShardingType.TABLE_COLUMN_WISE.value:
            host = self.shards[0].rank // host_ranks * host_ranks
            return range(host, host + host_ranks)
        if self.sharding_type in (ShardingType.TABLE_ROW_WISE.value, ShardingType.GRID_SHARD.value):
            position = number % host_ranks  # in the shard's block of columns
            rank = self.shards[number - position].rank // host_ranks * host_ranks + position
            return range(rank, rank + 1)
        return range(world_size)


def _overlap(boxes: list[tuple[int, int, int, int, int]]) -> tuple[int, int] | None:
    """Return the indices of two overlapping shards, the lower one first, or None."""
    ordered = sorted(boxes)
    for index, (_, left, bottom, right, number) in enumerate(ordered):
        for top, other_left, _, other_right, other in ordered[index + 1 :]:
            if top >= bottom:
                break  # all later boxes begin further down, too
            if left < other_right and other_left < right:
                return min(number, other), max(number, other)
    return None


def _box(size: Sequence[int], offset: Sequence[int]) -> str:
    return f"{size[0]} x {size[1]} at row {offset[0]}, column {offset[1]}"


def check_names(placed: Sequence[str], expected: Collection[str]) -> None:
    """Check that a plan places each table (torchrec's `fqn`) exactly once."""
    wrong = set(placed).symmetric_difference(expected) or {
        name for name, times in Counter(placed).items() if times > 1
    }
    if wrong:
        raise InfeasibleDecision(
            f"The plan does not place each table once: {min(wrong).lstrip('.')}."
        )


def check_memory(shards: Sequence[Shard], *usable: Sequence[int]) -> None:
    """Check that each rank has enough memory; `usable` has bytes by rank for HBM, DDR, SSD."""
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
