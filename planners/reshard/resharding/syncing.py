"""Blocks that synchronise less often than `Block`, or only what changed."""

from collections.abc import Sequence

from planners.reshard.resharding.block import Block, GraphChanged, Op
from planners.reshard.resharding.graph import Twin, outputs_of


class SyncAfterRemove(Block):
    """Synchronise the whole block before every insertion, and once after a batch of removals."""

    def take_out(self, ops: Sequence[Op]) -> None:
        """Remove ops, the mirror in one pass, then synchronise."""
        for op in reversed(ops):
            self.destroy(op)
        leaving = set(ops)
        self.ops = [op for op in self.ops if op not in leaving]
        self.after_removals()

    def after_removals(self) -> None:
        """Synchronise after a batch of removals."""
        self.sync()


class SyncOnce(SyncAfterRemove):
    """Synchronise the whole block once at the end of a batch of insertions.

    Until then places are those of the mirror, so a graph that others have edited is refused.
    """

    def before_edit(self) -> None:
        """Raise GraphChanged where others have edited the graph."""
        if self.is_outdated:
            raise GraphChanged(
                "The graph was edited behind the block, which takes no edits before a sync."
            )


class DeltaSync(SyncAfterRemove):
    """Synchronise only the edits in a journal; the whole block where others have edited.

    Invariant: apart from the journal, mirror and graph are equal, so its entries alone need a look.
    """

    def __init__(self, twin: Twin) -> None:
        self.journal: list[tuple[Op, Op | None]] = []
        super().__init__(twin)

    def after_insert(self, op: Op, follower: Op | None) -> None:
        """Add the insertion to the journal."""
        self.journal.append((op, follower))

    def after_removals(self) -> None:
        """Do nothing: the rest of the block is in sync, and removed ops need no look."""

    def catch_up(self) -> None:
        """Check the ops of the journal, or synchronise everything where others have edited."""
        if self.is_outdated:
            self.sync()
        else:
            self.replay(self.journal)
        self.journal.clear()

    def replay(self, journal: Sequence[tuple[Op, Op | None]]) -> None:
        """Raise GraphChanged where a new op is not in its place."""
        for op, follower in journal:
            made = [value.debugName() for value in outputs_of(op.node)]
            is_in_place = follower is None or op.node.isBefore(follower.node)
            if made != op.outputs or not is_in_place:
                raise GraphChanged(f"The graph was edited unseen: '{op}' is not where it was put.")
