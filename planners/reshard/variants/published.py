"""Paddle's resharding as it was, and as two changes made it."""

from harness.contract import Claim, Prepared
from planners.reshard.family import FAMILY
from planners.reshard.problem import ReshardProblem, prepare
from planners.reshard.resharding.resharder import Resharded
from planners.reshard.resharding.syncing import SyncAfterRemove, SyncEach, SyncOnce

PUBLISHED_ON = "auto-parallel pass over LLaMA-2 7B, 12 layers, as published"


@FAMILY.variant("sync-each", source="before PaddlePaddle/Paddle#59912", reference=True)
def sync_each(problem: ReshardProblem) -> "Prepared[Resharded]":
    """The whole block synchronised before every insertion and after every removal."""
    return prepare(problem, SyncEach)


@FAMILY.variant(
    "sync-after-remove",
    source="PaddlePaddle/Paddle#59912",
    same_as="sync-each",
    claim=Claim(32.811, 23.889, "s", PUBLISHED_ON),
)
def sync_after_remove(problem: ReshardProblem) -> "Prepared[Resharded]":
    """Removals synchronised once for a batch."""
    return prepare(problem, SyncAfterRemove)


@FAMILY.variant(
    "sync-once",
    source="PaddlePaddle/Paddle#60022",
    same_as="sync-each",
    claim=Claim(23.889, 18.928, "s", PUBLISHED_ON),
)
def sync_once(problem: ReshardProblem) -> "Prepared[Resharded]":
    """Insertions synchronised once for a batch too."""
    return prepare(problem, SyncOnce)
