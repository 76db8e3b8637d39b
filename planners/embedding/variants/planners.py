"""Variants with other proposers, which find other plans, and compiled planners."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from harness.contract import Claim, NotApplicable, Prepared
from planners.embedding.family import FAMILY

if TYPE_CHECKING:
    from planners.embedding.decision import Plan
    from planners.embedding.problem import EmbeddingProblem


def _proposer(name: str, **arguments: Any) -> Callable[[], Any]:
    """Return a factory of the proposer class with this name, from shardbench or torchrec."""
    from torchrec.distributed.planner import proposers

    from planners.embedding.same_plan import bin_proposer

    module = bin_proposer if hasattr(bin_proposer, name) else proposers
    return partial(getattr(module, name), **arguments)


def _prepared(problem: "EmbeddingProblem", *planner: Any, **parts: Any) -> "Prepared[Plan]":
    """Prepare a planner, by default torchrec's; imports torchrec only when it is called."""
    from planners.embedding.decision import prepare

    return prepare(problem, *planner, **parts)


def _proposing(problem: "EmbeddingProblem", name: str, **arguments: Any) -> "Prepared[Plan]":
    """Prepare torchrec's planner with the proposer of this name."""
    return _prepared(problem, proposer=_proposer(name, **arguments))


def _compiled(problem: "EmbeddingProblem", name: str = "") -> "Prepared[Plan]":
    """Prepare the drop-in planner with the proposer of this name, or with torchrec's four."""
    from planners.embedding.drop_in.planner import Planner
    from planners.embedding.search import warm_up

    parts = {"proposer": _proposer(name)} if name else {}
    warm_up.ready(warm_up.kernels_of(make() for make in parts.values()))
    return _prepared(problem, Planner, **parts)


def _captured(problem: "EmbeddingProblem", *kind: Any) -> "Prepared[Plan]":
    """Prepare the live planner, or a planner of another class with all its settings."""
    if problem.live is None:
        raise NotApplicable("The problem was not captured, or is placed on other machines.")
    planner = problem.live.planner
    if planner.obstacle:
        raise NotApplicable(f"The live planner cannot be made again: {planner.obstacle}.")
    return _prepared(
        problem,
        planner.make(*kind),
        proposer=lambda: [proposer.make() for proposer in planner.proposers],
        partitioner=planner.partitioner.make,
        performance_model=lambda: planner.perf_model.make(topology=problem.topology),
    )


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
    return _prepared(problem)


@FAMILY.variant("default-compiled", same_as="default", source="shardbench", requires=("numba",))
def default_compiled(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """The four proposers that torchrec uses when none is named, partitioner included, compiled"""
    return _compiled(problem)


@FAMILY.variant(
    "dp-torchrec",
    source="meta-pytorch/torchrec#2286",
    claim=Claim(
        before=904.90,
        after=11.86,
        unit="s",
        conditions="the script of #2282, more than 500 tables on 8 GPUs",
    ),
)
def dp_torchrec(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Dynamic programming over total HBM (DynamicProgrammingProposer)"""
    return _proposing(problem, "DynamicProgrammingProposer")


@FAMILY.variant("dp-tzrec", source="alibaba/TorchEasyRec@54cac31")
def dp_tzrec(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Dynamic programming over total HBM, or DDR without GPUs, in plain Python"""
    return _proposing(problem, "BinProposer")


@FAMILY.variant("dp-compiled", same_as="dp-tzrec", source="shardbench", requires=("numba",))
def dp_compiled(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """TorchEasyRec's dynamic programming, partitioner included, compiled"""
    return _compiled(problem, "BinProposer")


@FAMILY.variant("dp-tzrec-2d", source="alibaba/TorchEasyRec@aff7c2b6")
def dp_tzrec_2d(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Dynamic programming over total HBM and total DDR, in NumPy"""
    return _proposing(problem, "BinProposer2D")


@FAMILY.variant("dp-compiled-2d", same_as="dp-tzrec-2d", source="shardbench", requires=("numba",))
def dp_compiled_2d(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """TorchEasyRec's dynamic programming in two dimensions, partitioner included, compiled"""
    return _compiled(problem, "BinProposer2D")


@FAMILY.variant("as-captured", source="the captured file")
def as_captured(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """The live planner of a captured problem, with its own proposers and partitioner"""
    return _captured(problem)


@FAMILY.variant(
    "captured-compiled", same_as="as-captured", source="shardbench", requires=("numba",)
)
def captured_compiled(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """The live planner of a captured problem, with its search compiled"""
    from planners.embedding.drop_in.planner import Planner

    return _captured(problem, Planner)


@FAMILY.variant("compiled", same_as="upstream", source="shardbench", requires=("numba",))
def compiled(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """TorchRec's planner with its greedy proposer and its partitioner compiled"""
    return _compiled(problem, "GreedyProposer")


@FAMILY.variant("certified", source="shardbench", requires=("numba", "highspy"))
def certified(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Linear programme and local search, down to a proven gap"""
    from planners.embedding.drop_in.planner import Planner
    from planners.embedding.search import warm_up

    warm_up.ready(warm_up.BEST_PLAN)
    near: dict[str, Any] = {}
    if problem.moving is not None:
        near = {"previous": problem.moving.previous, "move_budget": problem.moving.gib}
    planner = partial(
        Planner,
        mode="best-plan",
        search_seconds=problem.search_seconds,
        remedy_seconds=0,  # they are searched for by the harness
        **near,
    )
    return _prepared(problem, planner)


@FAMILY.variant("calibrated", source="shardbench", requires=("numba", "highspy"))
def calibrated(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """As certified, by the estimate of a calibrated machine"""
    from planners.embedding.estimates.estimator import calibrated_plan
    from planners.embedding.search import warm_up

    if not problem.coefficients:
        raise NotApplicable(
            "The topology has no coefficients; `shardbench calibrate` writes one with coefficients."
        )
    warm_up.ready(warm_up.BEST_PLAN)
    return calibrated_plan(problem)
