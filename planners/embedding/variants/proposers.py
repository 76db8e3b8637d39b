"""TorchRec's other proposers: variants that decide for themselves, judged by time and quality."""

from typing import TYPE_CHECKING

from harness.contract import Prepared
from planners.embedding.family import FAMILY

if TYPE_CHECKING:
    from planners.embedding.decision import Plan
    from planners.embedding.problem import EmbeddingProblem


@FAMILY.variant("uniform", source="torchrec 1.9.2")
def uniform(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """One sharding type for all tables (UniformProposer)"""
    from torchrec.distributed.planner.proposers import UniformProposer

    return _prepared(problem, UniformProposer)


@FAMILY.variant("greedy-sum", source="torchrec 1.9.2")
def greedy_sum(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """GreedyProposer that orders options by the sum over shards"""
    from torchrec.distributed.planner.proposers import GreedyProposer

    return _prepared(problem, lambda: GreedyProposer(use_depth=False))


@FAMILY.variant("default", source="torchrec 1.9.2")
def default(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """The four proposers that torchrec uses when none is named"""
    return _prepared(problem, lambda: None)


@FAMILY.variant("dp-torchrec", source="meta-pytorch/torchrec#2286")
def dp_torchrec(problem: "EmbeddingProblem") -> "Prepared[Plan]":
    """Dynamic programming over total HBM (DynamicProgrammingProposer)"""
    from torchrec.distributed.planner.proposers import DynamicProgrammingProposer

    return _prepared(problem, DynamicProgrammingProposer)


def _prepared(problem: "EmbeddingProblem", proposer: object) -> "Prepared[Plan]":
    from planners.embedding.decision import new_planner, plan_with

    make = new_planner(problem, proposer=proposer)
    return Prepared(run=lambda: plan_with(problem, make()))
