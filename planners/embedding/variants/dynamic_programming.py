"""Dynamic programming over memory bins: TorchEasyRec's, plain and compiled."""

from typing import TYPE_CHECKING

from harness.contract import Prepared
from planners.embedding.family import FAMILY

if TYPE_CHECKING:
    from planners.embedding.decision import Plan
    from planners.embedding.problem import EmbeddingProblem


@FAMILY.variant("dp-tzrec", source="alibaba/TorchEasyRec@54cac31")
def dp_tzrec(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Dynamic programming over total HBM, or DDR without GPUs, in plain Python"""
    from planners.embedding.decision import new_planner, plan_with
    from planners.embedding.search.same_plan.bin_proposer import BinProposer

    make = new_planner(problem, proposer=BinProposer)
    return Prepared(run=lambda: plan_with(problem, make()))


@FAMILY.variant("dp-compiled", same_as="dp-tzrec", source="shardbench", requires=("numba",))
def dp_compiled(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """TorchEasyRec's dynamic programming, partitioner included, compiled"""
    from planners.embedding.decision import new_planner, plan_with
    from planners.embedding.drop_in.planner import Planner
    from planners.embedding.search.same_plan.bin_proposer import BinProposer
    from planners.embedding.search.warm_up import warm_up

    warm_up()
    make = new_planner(problem, Planner, proposer=BinProposer)
    return Prepared(run=lambda: plan_with(problem, make()))
