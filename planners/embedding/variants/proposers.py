"""Proposers other than the greedy one: each decides for itself, but for the compiled one."""

from typing import TYPE_CHECKING

from harness.contract import Prepared
from planners.embedding.family import FAMILY

if TYPE_CHECKING:
    from planners.embedding.decision import Plan
    from planners.embedding.problem import EmbeddingProblem


def _prepare(problem: "EmbeddingProblem", proposer: object) -> "Prepared[Plan]":
    from planners.embedding.decision import prepare

    return prepare(problem, proposer=proposer)


@FAMILY.variant("uniform", source="torchrec 1.9.2")
def uniform(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """One sharding type for all tables (UniformProposer)"""
    from torchrec.distributed.planner.proposers import UniformProposer

    return _prepare(problem, UniformProposer)


@FAMILY.variant("greedy-sum", source="torchrec 1.9.2")
def greedy_sum(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """GreedyProposer that orders options by the sum over shards"""
    from torchrec.distributed.planner.proposers import GreedyProposer

    return _prepare(problem, lambda: GreedyProposer(use_depth=False))


@FAMILY.variant("default", source="torchrec 1.9.2")
def default(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """The four proposers that torchrec uses when none is named"""
    return _prepare(problem, lambda: None)


@FAMILY.variant("dp-torchrec", source="meta-pytorch/torchrec#2286")
def dp_torchrec(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Dynamic programming over total HBM (DynamicProgrammingProposer)"""
    from torchrec.distributed.planner.proposers import DynamicProgrammingProposer

    return _prepare(problem, DynamicProgrammingProposer)


@FAMILY.variant("dp-tzrec", source="alibaba/TorchEasyRec@54cac31")
def dp_tzrec(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Dynamic programming over total HBM, or DDR without GPUs, in plain Python"""
    from planners.embedding.search.same_plan.bin_proposer import BinProposer

    return _prepare(problem, BinProposer)


@FAMILY.variant("dp-compiled", same_as="dp-tzrec", source="shardbench", requires=("numba",))
def dp_compiled(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """TorchEasyRec's dynamic programming, partitioner included, compiled"""
    from planners.embedding.decision import prepare
    from planners.embedding.drop_in.planner import Planner
    from planners.embedding.search.same_plan.bin_proposer import BinProposer
    from planners.embedding.search.warm_up import warm_up

    warm_up()
    return prepare(problem, Planner, proposer=BinProposer)
