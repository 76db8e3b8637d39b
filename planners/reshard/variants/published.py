"""Paddle's resharding as it was, and as two changes made it."""

from typing import TYPE_CHECKING

from harness.contract import Claim
from planners.reshard.family import FAMILY

if TYPE_CHECKING:
    from harness.contract import Prepared
    from planners.reshard.problem import ReshardProblem
    from planners.reshard.resharding.resharder import Resharded

_ON = "auto-parallel pass over LLaMA-2 7B, 12 layers, as published"


@FAMILY.variant("sync-each", source="before PaddlePaddle/Paddle#59912", reference=True)
def sync_each(problem: "ReshardProblem") -> "Prepared[Resharded]":
    """The whole block synchronised before every insertion and after every removal."""
    from planners.reshard.problem import prepare
    from planners.reshard.resharding.syncing import SyncEach

    return prepare(problem, SyncEach)


@FAMILY.variant(
    "sync-after-remove",
    source="PaddlePaddle/Paddle#59912",
    same_as="sync-each",
    claim=Claim(32.811, 23.889, "s", _ON),
)
def sync_after_remove(problem: "ReshardProblem") -> "Prepared[Resharded]":
    """Removals synchronised once for a batch."""
    from planners.reshard.problem import prepare
    from planners.reshard.resharding.syncing import SyncAfterRemove

    return prepare(problem, SyncAfterRemove)


@FAMILY.variant(
    "sync-once",
    source="PaddlePaddle/Paddle#60022",
    same_as="sync-each",
    claim=Claim(23.889, 18.928, "s", _ON),
)
def sync_once(problem: "ReshardProblem") -> "Prepared[Resharded]":
    """Insertions synchronised once for a batch too."""
    from planners.reshard.problem import prepare
    from planners.reshard.resharding.syncing import SyncOnce

    return prepare(problem, SyncOnce)
