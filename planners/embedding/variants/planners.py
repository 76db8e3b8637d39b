"""Planners that decide for themselves, by their proposers, and those that are compiled."""

from functools import partial
from typing import TYPE_CHECKING, Any

from harness.contract import Claim, NotApplicable, Prepared
from planners.embedding.family import FAMILY

if TYPE_CHECKING:
    from planners.embedding.decision import Plan
    from planners.embedding.problem import EmbeddingProblem


def _proposing(problem: "EmbeddingProblem", name: str, **arguments: Any) -> "Prepared[Plan]":
    """Prepare torchrec's planner with the proposer of torchrec that has this name."""
    from torchrec.distributed.planner import proposers

    from planners.embedding.decision import prepare

    return prepare(problem, proposer=lambda: getattr(proposers, name)(**arguments))


def _compiled(
    problem: "EmbeddingProblem", proposer: Any = None, **options: Any
) -> "Prepared[Plan]":
    """Prepare the drop-in planner with these options, and with torchrec's proposers or this one."""
    from planners.embedding.decision import prepare
    from planners.embedding.drop_in.planner import Planner
    from planners.embedding.search import warm_up

    proposers = [proposer()] if proposer else []
    best = options.get("mode") == "best-plan"
    warm_up.compile_ahead(warm_up.BEST_PLAN if best else warm_up.kernels_of(proposers))
    return prepare(problem, partial(Planner, **options), proposer=proposer)


@FAMILY.variant("uniform", source="torchrec 1.9.2")
def uniform(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """One sharding type for all tables (UniformProposer)"""
    return _proposing(problem, "UniformProposer")


@FAMILY.variant("greedy-sum", source="torchrec 1.9.2")
def greedy_sum(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """GreedyProposer that orders options by the sum over shards"""
    return _proposing(problem, "GreedyProposer", use_depth=False)


@FAMILY.variant("default", source="torchrec 1.9.2")
def default(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """The four proposers that torchrec uses when none is named"""
    from planners.embedding.decision import prepare

    return prepare(problem)


@FAMILY.variant(
    "dp-torchrec",
    source="meta-pytorch/torchrec#2286",
    claim=Claim(
        before=904.90,
        after=11.86,
        unit="s",
        conditions="more than 500 tables, against the proposers that there were, as published",
    ),
)
def dp_torchrec(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Dynamic programming over total HBM (DynamicProgrammingProposer)"""
    return _proposing(problem, "DynamicProgrammingProposer")


@FAMILY.variant("dp-tzrec", source="alibaba/TorchEasyRec@54cac31")
def dp_tzrec(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Dynamic programming over total HBM, or DDR without GPUs, in plain Python"""
    from planners.embedding.decision import prepare
    from planners.embedding.same_plan.bin_proposer import BinProposer

    return prepare(problem, proposer=BinProposer)


@FAMILY.variant("dp-compiled", same_as="dp-tzrec", source="shardbench", requires=("numba",))
def dp_compiled(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """TorchEasyRec's dynamic programming, partitioner included, compiled"""
    from planners.embedding.same_plan.bin_proposer import BinProposer

    return _compiled(problem, BinProposer)


@FAMILY.variant("dp-tzrec-2d", source="alibaba/TorchEasyRec@aff7c2b6")
def dp_tzrec_2d(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Dynamic programming over total HBM and total DDR, in NumPy"""
    from planners.embedding.decision import prepare
    from planners.embedding.same_plan.bin_proposer_2d import BinProposer2D

    return prepare(problem, proposer=BinProposer2D)


@FAMILY.variant("dp-compiled-2d", same_as="dp-tzrec-2d", source="shardbench", requires=("numba",))
def dp_compiled_2d(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """TorchEasyRec's dynamic programming in two dimensions, partitioner included, compiled"""
    from planners.embedding.same_plan.bin_proposer_2d import BinProposer2D

    return _compiled(problem, BinProposer2D)


@FAMILY.variant("as-captured", source="the captured file")
def as_captured(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """The live planner of a captured problem, with its own proposers and partitioner"""
    from planners.embedding.decision import prepare

    if problem.live is None:
        raise NotApplicable("The problem was not captured, or is placed on other machines.")
    planner = problem.live.planner
    if planner.obstacle:
        raise NotApplicable(f"The live planner cannot be made again: {planner.obstacle}.")
    return prepare(
        problem,
        planner.make(),
        proposer=lambda: [each.make() for each in planner.proposers],
        partitioner=planner.partitioner.make,
        performance_model=lambda: planner.perf_model.make(topology=problem.topology),
    )


@FAMILY.variant("compiled", same_as="upstream", source="shardbench", requires=("numba",))
def compiled(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """TorchRec's planner with its greedy proposer and its partitioner compiled"""
    from torchrec.distributed.planner.proposers import GreedyProposer

    return _compiled(problem, GreedyProposer)


@FAMILY.variant("certified", source="shardbench", requires=("numba", "highspy"))
def certified(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Linear programme and local search, down to a proven gap"""
    moving = problem.moving
    near = {} if moving is None else {"previous": moving.previous, "move_budget": moving.gib}
    return _compiled(problem, mode="best-plan", search_seconds=problem.search_seconds, **near)


@FAMILY.variant("calibrated", source="shardbench", requires=("numba", "highspy"))
def calibrated(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """As certified, but by the estimate of a machine that was calibrated"""
    from planners.embedding.estimates.calibrated_plan import calibrated_plan
    from planners.embedding.search import warm_up

    if not problem.coefficients:
        raise NotApplicable(
            "The topology has no coefficients; `shardbench calibrate` writes one that has."
        )
    warm_up.compile_ahead(warm_up.BEST_PLAN)
    return calibrated_plan(problem)
