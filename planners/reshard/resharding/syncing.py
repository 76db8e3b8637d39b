"""When a block is brought in line with its graph, and how much of it is looked at then."""

from collections.abc import Sequence

from planners.reshard.resharding.block import Block, GraphChanged, Op
from planners.reshard.resharding.graph import Twin, outputs_of


class SyncEach(Block):
    """The whole block before every insertion and after every removal."""


class SyncAfterRemove(Block):
    """The whole block before every insertion, and once after a batch of removals."""

    def take_out(self, ops: Sequence[Op]) -> None:
        """Take ops out, the mirror in one pass, and bring the block in line."""
        for op in reversed(ops):
            self.destroy(op)
        leaving = set(ops)
        self.ops = [op for op in self.ops if op not in leaving]
        self.after_removals()

    def after_removals(self) -> None:
        """Bring the block in line after a batch of removals."""
        self.sync()


class SyncOnce(SyncAfterRemove):
    """The whole block once at the end of a batch of insertions.

    Until then places are those of the mirror, so that a graph that somebody else has edited is
    refused.
    """

    def before_edit(self) -> None:
        """Raise GraphChanged where the mirror may not hold any more."""
        if self.is_outdated:
            raise GraphChanged(
                "The graph was edited behind the block, which takes no edits before a sync."
            )


class DeltaSync(SyncAfterRemove):
    """Only what was edited since, from a journal; the whole block where somebody else edited."""

    def __init__(self, twin: Twin) -> None:
        self.journal: list[tuple[Op, Op | None]] = []
        super().__init__(twin)

    def after_insert(self, op: Op, follower: Op | None) -> None:
        """Write the insertion down."""
        self.journal.append((op, follower))

    def after_removals(self) -> None:
        """Leave it: the block was in line before, and what is gone needs no look."""

    def catch_up(self) -> None:
        """Reconcile what the journal names, or everything where somebody else has edited."""
        if self.is_outdated:
            self.sync()
        else:
            self.replay(self.journal)
        self.journal.clear()

    def replay(self, journal: Sequence[tuple[Op, Op | None]]) -> None:
        """Raise GraphChanged where a new op is not where the journal has it."""
        for op, follower in journal:
            made = [value.debugName() for value in outputs_of(op.node)]
            is_in_place = follower is None or op.node.isBefore(follower.node)
            if made != op.outputs or not is_in_place:
                raise GraphChanged(f"The graph was edited unseen: '{op}' is not where it was put.")
