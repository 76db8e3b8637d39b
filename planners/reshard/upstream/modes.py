"""Modes of a Resharder: how often the Python copy of a block is synchronised with the C++ one.

A release either has no batches, and both parts of upstream's change are emulated on it; or it has
both parts, but its only caller switches the second one off.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from paddle.base.framework import Block
from paddle.distributed.auto_parallel.static.reshard import Resharder


class VariablesInBatch(Resharder):
    """PaddlePaddle/Paddle#59912: one sync for all variables removed from a block."""

    def reshard(self) -> None:
        """Reshard as upstream, with variables removed in batches."""
        with _variables_removed_in_batches():
            super().reshard()


class AllInBatch(VariablesInBatch):
    """And PaddlePaddle/Paddle#60022: one sync for all ops that inputs need in a block."""

    def _reshard_input(self, block: Any) -> None:
        with patch.object(Block, "_insert_op", Block._insert_op_without_sync):
            super()._reshard_input(block)
        block._sync_with_cpp()


class InsertWithoutSync(Resharder):
    """PaddlePaddle/Paddle#60022 switched on, by the argument that the release never passes."""

    def parse_op_desc(self, *arguments: Any) -> None:
        """Insert without a sync; there is one when all inputs are done."""
        super().parse_op_desc(*arguments, sync=False)


RESHARDERS: dict[str, type[Resharder]] = {"as-shipped": Resharder}
if "sync" in inspect.signature(Resharder.parse_op_desc).parameters:
    RESHARDERS["sync-once"] = InsertWithoutSync
else:
    RESHARDERS["part1"] = VariablesInBatch
    RESHARDERS["part1+2"] = AllInBatch


@contextmanager
def _variables_removed_in_batches() -> Iterator[None]:
    """Replace the sync before each removal by one sync after the last removal from a block."""
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
