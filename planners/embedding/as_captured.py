"""A captured problem's own planner: the live one's class, proposers, partitioner and settings."""

from typing import TYPE_CHECKING

from harness.registry import NotApplicable, Prepared
from planners.embedding.family import FAMILY

if TYPE_CHECKING:
    from planners.embedding.plan import Plan
    from planners.embedding.problem import EmbeddingProblem


@FAMILY.variant("as-captured", source="the captured file")
def as_captured(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """The live planner of a captured problem, with its own proposers and partitioner"""
    from planners.embedding.plan import new_planner, plan_with

    if problem.live is None:
        raise NotApplicable("The problem was not captured, or is placed on other machines.")
    planner = problem.live.planner
    if planner.obstacle:
        raise NotApplicable(f"The live planner cannot be made again: {planner.obstacle}.")
    make = new_planner(
        problem,
        planner.make(),
        proposer=lambda: [each.make() for each in planner.proposers],
        partitioner=planner.partitioner.make,
        performance_model=lambda: planner.perf_model.make(topology=problem.topology),
    )
    return Prepared(run=lambda: plan_with(problem, make()))
