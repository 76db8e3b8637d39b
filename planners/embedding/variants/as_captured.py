"""A captured problem's own planner: the live one's class, proposers, partitioner and settings."""

from typing import TYPE_CHECKING

from harness.contract import NotApplicable, Prepared
from planners.embedding.family import FAMILY

if TYPE_CHECKING:
    from planners.embedding.decision import Plan
    from planners.embedding.problem import EmbeddingProblem


@FAMILY.variant("as-captured", source="the captured file")
def as_captured(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """The live planner of a captured problem, with its own proposers and partitioner"""
    from planners.embedding.decision import new_planner, plan_with

    live = problem.live
    if live is None:
        raise NotApplicable("The problem was not captured, or is placed on other machines.")
    if live.obstacle:
        raise NotApplicable(f"The live planner cannot be made again: {live.obstacle}.")
    make = new_planner(
        problem,
        live.planner(),
        proposer=lambda: [each.proposer() for each in live.proposers],
        partitioner=live.partitioner.partitioner,
        performance_model=lambda: live.perf_model.perf_model(problem.topology),
    )
    return Prepared(run=lambda: plan_with(problem, make()))
