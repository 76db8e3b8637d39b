"""Other planners: that of the job which a problem was captured from, and the drop-in one."""

from functools import partial
from typing import TYPE_CHECKING

from harness.contract import NotApplicable, Prepared
from planners.embedding.family import FAMILY

if TYPE_CHECKING:
    from planners.embedding.decision import Plan
    from planners.embedding.problem import EmbeddingProblem


@FAMILY.variant("as-captured", source="the captured file")
def as_captured(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """The live planner of a captured problem, with its own proposers and partitioner"""
    from planners.embedding.decision import prepare

    live = problem.live
    if live is None:
        raise NotApplicable("The problem was not captured, or is placed on other machines.")
    if live.obstacle:
        raise NotApplicable(f"The live planner cannot be made again: {live.obstacle}.")
    return prepare(
        problem,
        live.planner(),
        proposer=lambda: [each.proposer() for each in live.proposers],
        partitioner=live.partitioner.partitioner,
        performance_model=lambda: live.perf_model.perf_model(problem.topology),
    )


@FAMILY.variant("compiled", same_as="upstream", source="shardbench", requires=("numba",))
def compiled(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """TorchRec's planner with its greedy proposer and its partitioner compiled"""
    from torchrec.distributed.planner.proposers import GreedyProposer

    from planners.embedding.decision import prepare
    from planners.embedding.drop_in.planner import Planner
    from planners.embedding.search.warm_up import warm_up

    warm_up()
    return prepare(problem, Planner, proposer=GreedyProposer)


@FAMILY.variant("certified", source="shardbench", requires=("numba", "highspy"))
def certified(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Linear programme and local search, down to a proven gap"""
    from planners.embedding.decision import prepare
    from planners.embedding.drop_in.planner import Planner
    from planners.embedding.search.warm_up import warm_up

    warm_up()
    best_plan = partial(Planner, mode="best-plan", search_seconds=problem.search_seconds)
    return prepare(problem, best_plan)
