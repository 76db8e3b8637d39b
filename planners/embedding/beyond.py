"""What surpasses torchrec's planner: the same plan in less time."""

from typing import TYPE_CHECKING

from harness.registry import Prepared
from planners.embedding.family import FAMILY

if TYPE_CHECKING:
    from planners.embedding.plan import Plan
    from planners.embedding.problem import EmbeddingProblem


@FAMILY.variant("compiled", same_as="upstream", source="shardbench", requires=("numba",))
def compiled(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """TorchRec's planner with its greedy proposer and its partitioner compiled"""
    from torchrec.distributed.planner.proposers import GreedyProposer

    from planners.embedding.plan import plan_with
    from planners.embedding.planner import Planner

    def make() -> Planner:
        return Planner(
            topology=problem.topology,
            constraints=problem.constraints,
            storage_reservation=problem.storage_reservation(),
            proposer=GreedyProposer(),
            stats=[],
            debug=False,
        )

    return Prepared(run=lambda: plan_with(problem, make()))
