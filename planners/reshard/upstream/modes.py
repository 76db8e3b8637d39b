"""How a Resharder keeps the Python copy of a block in step with the C++ one: what is compared.

A release either has no batches at all, and both parts of upstream's change are emulated on it; or
it has both parts, but calls the second one in a way that leaves it without effect.
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
        """Reshard as upstream does otherwise."""
        with _variables_removed_in_batches():
            super().reshard()


class AllInBatch(VariablesInBatch):
    """And PaddlePaddle/Paddle#60022: one sync for all ops that inputs need in a block."""

    def _reshard_input(self, block: Any) -> None:
        with patch.object(Block, "_insert_op", Block._insert_op_without_sync):
            super()._reshard_input(block)
        block._sync_with_cpp()


class InsertWithoutSync(Resharder):
    """The argument that a release with #60022 has for it, and does not pass, is passed."""

    def parse_op_desc(self, *arguments: Any) -> None:
        """Insert without a sync; there is one when all inputs are done."""
        super().parse_op_desc(*arguments, sync=False)


RESHARDERS: dict[str, type[Resharder]] = {"as-shipped": Resharder}
if "sync" in inspect.signature(Resharder.parse_op_desc).parameters:
    RESHARDERS["sync-once"] = InsertWithoutSync
else:
    RESHARDERS["part1"] = VariablesInBatch
    RESHARDERS["part1+2"] = AllInBatch


def resharder_of(mode: str) -> type[Resharder]:
    """Return the class for a mode.

    Raises:
        ValueError: this release does not have the mode.
    """
    if mode not in RESHARDERS:
        raise ValueError(f"mode is '{mode}'; this release has: {', '.join(RESHARDERS)}")
    return RESHARDERS[mode]


@contextmanager
def _variables_removed_in_batches() -> Iterator[None]:
    """Leave out the sync before each removal; do one after a block's last one instead."""
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
