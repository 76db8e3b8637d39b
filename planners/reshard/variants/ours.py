"""Variants that go beyond what was published."""

from typing import TYPE_CHECKING

from planners.reshard.family import FAMILY

if TYPE_CHECKING:
    from harness.contract import Prepared
    from planners.reshard.problem import ReshardProblem
    from planners.reshard.resharding.resharder import Resharded


@FAMILY.variant("delta-sync", source="shardbench", same_as="sync-each")
def delta_sync(problem: "ReshardProblem") -> "Prepared[Resharded]":
    """A journal of the edits: always in line, and only what changed is looked at."""
    from planners.reshard.problem import prepare
    from planners.reshard.resharding.syncing import DeltaSync

    return prepare(problem, DeltaSync)


@FAMILY.variant("indexed", source="shardbench", same_as="sync-each")
def indexed(problem: "ReshardProblem") -> "Prepared[Resharded]":
    """The journal, and neither a search through the block nor a scan to its end."""
    from planners.reshard.problem import prepare
    from planners.reshard.resharding.resharder import IndexedResharder
    from planners.reshard.resharding.syncing import DeltaSync

    return prepare(problem, DeltaSync, IndexedResharder)
