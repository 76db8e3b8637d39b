"""Variants on our graphs: Paddle's resharding before and after its two changes, and ours."""

from harness.contract import Claim, Prepared
from planners.reshard.family import FAMILY
from planners.reshard.problem import ReshardProblem, prepare
from planners.reshard.resharding.block import Block, DeltaSync, SyncAfterRemove, SyncOnce
from planners.reshard.resharding.resharder import IndexedResharder, Resharded

CLAIMS = (
    Claim(12.932, 4.311, "s", "reshard() for 12 layers of LLaMA-2 7B on 4 GPUs, under cProfile"),
    Claim(4.184, 1.891, "s", "_reshard_input in the same run, under cProfile"),
)
"""Of PaddlePaddle/Paddle#59912, and of #60022 on top of it."""


@FAMILY.variant("sync-each", source="before PaddlePaddle/Paddle#59912", reference=True)
def sync_each(problem: ReshardProblem) -> "Prepared[Resharded]":
    """Synchronise the whole block before every insertion and after every removal."""
    return prepare(problem, Block)


@FAMILY.variant(
    "sync-after-remove", source="PaddlePaddle/Paddle#59912", same_as="sync-each", claim=CLAIMS[0]
)
def sync_after_remove(problem: ReshardProblem) -> "Prepared[Resharded]":
    """As sync-each, but synchronise once after a batch of removals."""
    return prepare(problem, SyncAfterRemove)


@FAMILY.variant(
    "sync-once", source="PaddlePaddle/Paddle#60022", same_as="sync-each", claim=CLAIMS[1]
)
def sync_once(problem: ReshardProblem) -> "Prepared[Resharded]":
    """As sync-after-remove, and synchronise once after a batch of insertions too."""
    return prepare(problem, SyncOnce)


@FAMILY.variant("delta-sync", source="shardbench", same_as="sync-each")
def delta_sync(problem: ReshardProblem) -> "Prepared[Resharded]":
    """Keep a journal of the insertions, and check only the ops in it."""
    return prepare(problem, DeltaSync)


@FAMILY.variant("indexed", source="shardbench", same_as="sync-each")
def indexed(problem: ReshardProblem) -> "Prepared[Resharded]":
    """As delta-sync, and find ops and their readers without scans of the block."""
    return prepare(problem, DeltaSync, IndexedResharder)
