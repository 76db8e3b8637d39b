"""Our placements: the best balance, and balance and fetches decided together."""

from harness.contract import Prepared
from planners.experts.balancing.certified import certified
from planners.experts.balancing.few_moves import few_moves
from planners.experts.family import FAMILY
from planners.experts.problem import ExpertsProblem, Placement


@FAMILY.variant("certified", source="shardbench")
def certified_variant(problem: ExpertsProblem) -> Prepared[Placement]:
    """The best balance: greedy, then exchanges and better counts until a proven bound is near"""
    return Prepared(lambda: certified(problem))


@FAMILY.variant("few-moves", source="shardbench")
def few_moves_variant(problem: ExpertsProblem) -> Prepared[Placement]:
    """Few fetches from the placement in force, within 2 % of the bound or within the budget"""
    return Prepared(lambda: few_moves(problem))
