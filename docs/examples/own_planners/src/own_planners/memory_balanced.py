"""A variant for a family that is there: torchrec's planner with its other partitioner."""

from typing import TYPE_CHECKING

from planners.embedding import FAMILY

if TYPE_CHECKING:
    from harness.contract import Prepared
    from planners.embedding.decision import Plan
    from planners.embedding.problem import EmbeddingProblem

__all__ = ["FAMILY"]


@FAMILY.variant("memory-balanced", source="torchrec 1.9.2")
def memory_balanced(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """GreedyProposer, and the partitioner that levels memory (MemoryBalancedPartitioner)"""
    # Heavy libraries are imported here: listing variants must stay quick.
    from torchrec.distributed.planner.partitioners import MemoryBalancedPartitioner
    from torchrec.distributed.planner.proposers import GreedyProposer

    from planners.embedding.decision import prepare

    return prepare(problem, proposer=GreedyProposer, partitioner=MemoryBalancedPartitioner)
