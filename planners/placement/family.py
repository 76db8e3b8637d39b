"""Declare the placement family: its qualities, workloads, studies and abilities.

This module imports neither NumPy nor numba, so that listing variants is quick.
"""

from typing import TYPE_CHECKING

from harness.contract import (
    OTHERS,
    Abilities,
    Counter,
    Family,
    Pair,
    Quality,
    Statement,
    Study,
)
from planners.placement.workloads import WORKLOADS, brings, label

if TYPE_CHECKING:
    from planners.placement.problem import PlacementProblem, Plan

_SMALL = "blocks[blocks=4]/captured:1"
_AMPLE = "blocks[blocks=4,spare=10]/captured:1"
_LARGE_AMPLE = "blocks[blocks=16,spare=10,seconds=60]/captured:1"
_LARGE = "blocks[blocks=60,ops=20,states=8]/captured:1"
_LADDER = (
    *("descent", "descent-compiled", "reductions", "reductions-compiled"),
    *("trws", "lp", "ilp", "certified"),
)

_STATEMENTS = (
    Statement(
        "headline",
        "AutoParallel",
        _LARGE_AMPLE,
        "ilp",
        "certified",
        quick=Pair(_AMPLE, "ilp", "certified"),
        claim="AutoParallel #521, TRW-S",
        before_is="a stand-in: AutoParallel's integer programme, built anew and solved by HiGHS",
        next_step="`shardbench.accelerate_autoparallel()` around AutoParallel",
        remark="Both variants solve a generated model with ample memory, as AutoParallel has by "
        "default. AutoParallel itself builds the programme in PuLP, and CBC solves it.",
    ),
    Statement("headline", "AutoParallel", _SMALL, "ilp", "certified", "cost"),
    Statement(
        "claim",
        "AutoParallel #521, TRW-S",
        _LARGE_AMPLE,
        "ilp",
        "trws",
        quick=Pair(_AMPLE, "ilp", "trws"),
        remark="Recorded with HiGHS in place of CBC, on a generated model.",
    ),
    Statement(
        "claim",
        "AutoParallel #521, LP relaxation",
        _LARGE_AMPLE,
        "ilp",
        "lp",
        quick=Pair(_AMPLE, "ilp", "lp"),
    ),
    Statement(
        "goal",
        "no dearer than any other variant where memory is tight",
        _SMALL,
        OTHERS,
        "certified",
        "cost",
        at_most=1.0,
    ),
    Statement(
        "goal",
        "the integer programme's plan 20 times as fast",
        _LARGE_AMPLE,
        "ilp",
        "certified",
        at_least=20,
    ),
    Statement(
        "goal",
        "exact reductions 50 times as fast as in Python",
        _SMALL,
        "reductions",
        "reductions-compiled",
        at_least=50,
    ),
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
    statements=_STATEMENTS,
    place=60,
    abilities=Abilities(
        planning="planners.placement.planning:PLANNING",
        capture="planners.placement.drop_in.accelerate:capturing",
        explain="planners.placement.explaining:explain",
        figures="planners.placement.implementation:figures",
    ),
)
