"""Modes of Paddle's Resharder: how often it synchronises a block's Python copy with the C++ block.

Upstream's change has two parts. For a release without them, this module emulates both. A release
with them has both, but its only caller switches the second one off.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from paddle.base.framework import Block
from paddle.distributed.auto_parallel.static.reshard import Resharder


class VariablesInBatch(Resharder):
    """Emulate PaddlePaddle/Paddle#59912: one sync after removing variables from a block."""

    def reshard(self) -> None:
        """Reshard as upstream does, but remove variables in batches."""
        with _variables_removed_in_batches():
            super().reshard()


class AllInBatch(VariablesInBatch):
    """Emulate #59912 and PaddlePaddle/Paddle#60022: one sync for all ops inserted in a block."""

    def _reshard_input(self, block: Any) -> None:
        with patch.object(Block, "_insert_op", Block._insert_op_without_sync):
            super()._reshard_input(block)
        block._sync_with_cpp()


class InsertWithoutSync(Resharder):
    """Use #60022 as released, by an argument that the release itself never passes."""

    def parse_op_desc(self, *arguments: Any) -> None:
        """Insert ops without a sync; the caller synchronises after all inputs."""
        super().parse_op_desc(*arguments, sync=False)


RESHARDERS: dict[str, type[Resharder]] = {"as-shipped": Resharder}
if "sync" in inspect.signature(Resharder.parse_op_desc).parameters:
    RESHARDERS["sync-once"] = InsertWithoutSync
else:
    RESHARDERS["part1"] = VariablesInBatch
    RESHARDERS["part1+2"] = AllInBatch
BATCHED = list(RESHARDERS)[-1]
"""The mode that batches all edits."""


@contextmanager
def _variables_removed_in_batches() -> Iterator[None]:
    """Synchronise once after the last variable removed from a block, not before each one."""
    remove_var, remove_op = Block._remove_var, Block._remove_op
    unsynced: list[Any] = []  # the block that variables are being removed from

    def end_batch() -> None:
        while unsynced:
            unsynced.pop()._sync_with_cpp()

    def remove_var_without_sync(block: Any, name: str) -> None:
        if block not in unsynced:
            end_batch()
            unsynced.append(block)
        remove_var(block, name, sync=False)

    def remove_op_after_batch(block: Any, index: int, sync: bool = True) -> None:
        end_batch()
        remove_op(block, index, sync=sync)

    with (
        patch.object(Block, "_remove_var", remove_var_without_sync),
        patch.object(Block, "_remove_op", remove_op_after_batch),
    ):
        yield
        end_batch()
