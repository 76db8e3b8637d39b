"""What surpasses torchrec's planner: the same plan in less time, and a better plan with a proof."""

from functools import partial
from typing import TYPE_CHECKING

from harness.contract import Prepared
from planners.embedding.family import FAMILY

if TYPE_CHECKING:
    from planners.embedding.decision import Plan
    from planners.embedding.problem import EmbeddingProblem


@FAMILY.variant("compiled", same_as="upstream", source="shardbench", requires=("numba",))
def compiled(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """TorchRec's planner with its greedy proposer and its partitioner compiled"""
    from torchrec.distributed.planner.proposers import GreedyProposer

    from planners.embedding.decision import new_planner, plan_with
    from planners.embedding.drop_in.planner import Planner
    from planners.embedding.search.warm_up import warm_up

    warm_up()
    make = new_planner(problem, Planner, proposer=GreedyProposer)
    return Prepared(run=lambda: plan_with(problem, make()))


@FAMILY.variant("certified", source="shardbench", requires=("numba", "highspy"))
def certified(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Linear programme and local search, down to a proven gap"""
    from planners.embedding.decision import new_planner, plan_with
    from planners.embedding.drop_in.planner import Planner
    from planners.embedding.search.warm_up import warm_up

    warm_up()
    make = new_planner(
        problem, partial(Planner, mode="best-plan", search_seconds=problem.search_seconds)
    )
    return Prepared(run=lambda: plan_with(problem, make()))
