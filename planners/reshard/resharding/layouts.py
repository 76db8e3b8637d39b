"""Where a value lies: on which pipeline stage, and how its tensor-parallel ranks share it."""

from typing import NamedTuple

REPLICATED = -1


class ValueLayout(NamedTuple):
    """Where a value lies.

    `sharded` is the dimension that the ranks of the stage share, REPLICATED where each has all of
    it; `partial` says that it is the sum of what they have.
    """

    stage: int
    sharded: int = REPLICATED
    partial: bool = False

    def on(self, stage: int) -> "ValueLayout":
        """Return the same on another stage."""
        return self._replace(stage=stage)


class ValueKind(NamedTuple):
    """What a value is: the elements of the whole tensor, bytes of each, and whether it is bool."""

    elements: int
    item_bytes: int
    is_bool: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.elements * self.item_bytes
