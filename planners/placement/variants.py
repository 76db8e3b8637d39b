"""Variants: published methods, and ours. Modules are imported at first use."""

from typing import TYPE_CHECKING

from harness.contract import NotApplicable, Prepared
from planners.placement.family import FAMILY

if TYPE_CHECKING:
    from planners.placement.problem import PlacementProblem, Plan

_MOST_PAIRS_OF_ILP = 500_000


@FAMILY.variant("descent", reference=True, source="Besag 1986, iterated conditional modes")
def descent(problem: "PlacementProblem") -> "Prepared[Plan]":
    """From the smallest states, each op in turn takes its cheapest state that fits, in Python"""
    return Prepared(lambda: _descended(problem, is_compiled=False))


@FAMILY.variant("descent-compiled", same_as="descent", source="shardbench")
def descent_compiled(problem: "PlacementProblem") -> "Prepared[Plan]":
    """As descent, with compiled loops"""
    _descended(problem, is_compiled=True)  # loads the machine code
    return Prepared(lambda: _descended(problem, is_compiled=True))


def _descended(problem: "PlacementProblem", is_compiled: bool) -> "Plan":
    from planners.placement.problem import Plan
    from planners.placement.search.descent import descended, smallest
    from planners.placement.search.graph import graph_of

    graph = graph_of(problem)
    return Plan(descended(graph, smallest(graph), is_compiled))


@FAMILY.variant("ilp", source="meta-pytorch/autoparallel, optimize_sharding.py")
def ilp(problem: "PlacementProblem") -> "Prepared[Plan]":
    """The integer programme of the whole problem, as AutoParallel builds it, solved by HiGHS"""
    from planners.placement.search.certified import by_programme
    from planners.placement.search.graph import graph_of
    from planners.placement.search.reduction import unreduced

    if len(problem.pairs) > _MOST_PAIRS_OF_ILP:
        raise NotApplicable(f"It takes problems with at most {_MOST_PAIRS_OF_ILP:,} pairs.")
    return Prepared(lambda: by_programme(unreduced(graph_of(problem)), problem.seconds))


@FAMILY.variant("forests", source="shardbench")
def forests(problem: "PlacementProblem") -> "Prepared[Plan]":
    """Reductions, prices of memory by TRW-S, and a search by forests"""
    from planners.placement.search.certified import by_search
    from planners.placement.search.graph import graph_of
    from planners.placement.search.reduction import reduced
    from planners.placement.search.warm_up import warm_up

    warm_up()
    return Prepared(lambda: by_search(reduced(graph_of(problem)), problem.seconds))


@FAMILY.variant("certified", source="shardbench")
def certified(problem: "PlacementProblem") -> "Prepared[Plan]":
    """Reductions, then the integer programme or the search by forests, with a proven bound"""
    from planners.placement.search.certified import certified
    from planners.placement.search.warm_up import warm_up

    warm_up()
    return Prepared(lambda: certified(problem))
