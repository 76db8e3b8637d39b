"""Declare the placement family: its qualities, workloads, studies and abilities.

This module imports neither NumPy nor numba, so that listing variants is quick.
"""

from typing import TYPE_CHECKING

from harness.contract import Abilities, Counter, Family, Quality, Study
from planners.placement.workloads import WORKLOADS, brings, label

if TYPE_CHECKING:
    from planners.placement.problem import PlacementProblem, Plan

_SMALL = "blocks[blocks=4]/captured:1"
_AMPLE = "blocks[blocks=4,spare=10]/captured:1"
_LARGE = "blocks[blocks=60,ops=20,states=8]/captured:1"
_LADDER = (
    *("descent", "descent-compiled", "reductions", "reductions-compiled"),
    *("trws", "lp", "ilp", "certified"),
)

FAMILY: Family["PlacementProblem", "Plan"] = Family(
    name="placement",
    summary="a sharding for each op of a model: the IOPDDL contest, XLA's and AutoParallel's task",
    implementation="planners.placement.implementation",
    label=label,
    brings=brings,
    qualities=(
        Quality("cost", "", "lower", "cost of all ops and conversions, in the problem's unit"),
        Quality("bound", "", "higher", "proven lower bound for all plans", bounds="cost"),
        Quality("over_best_known", "", "lower", "cost over the lowest of 20 teams and XLA"),
        Quality("peak", "", "lower", "largest share of the memory in use at a time"),
    ),
    counters=(
        Counter("reductions", "times that a graph was reduced"),
        Counter("sweeps", "passes of messages over the graph, forward and back"),
        Counter("searches", "rounds of search by forests"),
    ),
    phases=("reduce", "bound", "search", "programme", "other"),
    workloads=lambda: WORKLOADS,
    requires=("numba", "highspy"),
    benchmarks=("blocks[blocks=2,seconds=600]/captured:1",),
    studies=(
        Study(_SMALL, _LADDER, "four blocks"),
        Study(_AMPLE, _LADDER, "four blocks with ample memory"),
        Study(_LARGE, ("descent", "descent-compiled", "certified"), "sixty blocks", large=True),
    ),
    place=60,
    abilities=Abilities(
        planning="planners.placement.planning:PLANNING",
        capture="planners.placement.drop_in.accelerate:capturing",
        explain="planners.placement.explaining:explain",
        figures="planners.placement.implementation:figures",
    ),
)
