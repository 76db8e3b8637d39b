"""Our balancers. Their modules are imported at first use."""

from typing import TYPE_CHECKING

from harness.contract import Prepared
from planners.experts.family import FAMILY

if TYPE_CHECKING:
    from planners.experts.problem import ExpertsProblem, Placement


@FAMILY.variant("compiled", same_as="numpy", source="shardbench")
def compiled(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """As numpy, with compiled loops"""
    from planners.experts.published.vllm import compiled_placement

    compiled_placement(problem)  # loads the machine code
    return Prepared(lambda: compiled_placement(problem))


@FAMILY.variant("compiled-deepseek", same_as="deepseek", source="shardbench", requires=("torch",))
def compiled_deepseek(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """As deepseek, with compiled loops"""
    from planners.experts.published.deepseek import COMPILED, one_thread

    COMPILED.place(problem)  # loads the machine code
    return Prepared(lambda: COMPILED.place(problem), installed=one_thread)


@FAMILY.variant("certified", source="shardbench")
def certified(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """The best balance: greedy, then exchanges and better counts until a proven bound is near"""
    from planners.experts.balancing.certified import certified

    return Prepared(lambda: certified(problem))


@FAMILY.variant("few-moves", source="shardbench")
def few_moves(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """Few fetches from the placement in force, within 2 % of the bound or within the budget"""
    from planners.experts.balancing.few_moves import few_moves

    return Prepared(lambda: few_moves(problem))
