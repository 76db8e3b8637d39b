"""Variants that go beyond what was published."""

from harness.contract import Prepared
from planners.reshard.family import FAMILY
from planners.reshard.problem import ReshardProblem, prepare
from planners.reshard.resharding.resharder import IndexedResharder, Resharded
from planners.reshard.resharding.syncing import DeltaSync


@FAMILY.variant("delta-sync", source="shardbench", same_as="sync-each")
def delta_sync(problem: ReshardProblem) -> "Prepared[Resharded]":
    """A journal of the edits: always in line, and only what changed is looked at."""
    return prepare(problem, DeltaSync)


@FAMILY.variant("indexed", source="shardbench", same_as="sync-each")
def indexed(problem: ReshardProblem) -> "Prepared[Resharded]":
    """The journal, and neither a search through the block nor a scan to its end."""
    return prepare(problem, DeltaSync, IndexedResharder)
