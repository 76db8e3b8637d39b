"""Declare the placement family: its qualities, workloads, studies and abilities.

This module imports neither NumPy nor numba, so that listing variants is quick.
"""

from typing import TYPE_CHECKING, Any, Literal

from harness.contract import OTHERS, Abilities, Counter, Family, Pair, Quality, Statement, Study
from planners.placement.workloads import WORKLOADS, brings, label

if TYPE_CHECKING:
    from planners.placement.problem import PlacementProblem, Plan

_TIGHT = "blocks[blocks=2,seconds=600]/captured:1"
_AMPLE = "blocks[blocks=4,spare=10]/captured:1"
_LARGE_AMPLE = "blocks[blocks=32,states=12,spare=10,seconds=600]/captured:1"
_LARGE = "blocks[blocks=60,ops=20,states=8]/captured:1"
_LADDER = ("descent", "descent-compiled", "reductions", "reductions-compiled", "ilp", "certified")
_RELAXED = ("trws", "lp")


def _beside_cbc(
    use: Literal["headline", "claim", "goal"], name: str, after: str, **more: Any
) -> Statement:
    """Compare a variant with AutoParallel's programme where memory is ample."""
    quick = Pair(_AMPLE, "ilp-cbc", after)
    return Statement(use, name, _LARGE_AMPLE, "ilp-cbc", after, quick=quick, **more)


_STATEMENTS = (
    _beside_cbc(
        "headline",
        "AutoParallel",
        "certified",
        claim="AutoParallel #521, TRW-S",
        before_is="a stand-in: a programme like AutoParallel's, by PuLP and CBC. AutoParallel "
        "itself gains less: its own variables are read",
        next_step="`shardbench.accelerate_autoparallel()` around AutoParallel",
        remark="The models are generated, and have ample memory. Inside AutoParallel its own "
        "variables must be read, which takes longer than the search.",
    ),
    Statement("headline", "AutoParallel", _TIGHT, "ilp-cbc", "certified", "cost"),
    _beside_cbc(
        "claim",
        "AutoParallel #521, TRW-S",
        "trws",
        remark="The variant here is compiled and works on arrays, and the model is generated.",
    ),
    _beside_cbc("claim", "AutoParallel #521, LP relaxation", "lp"),
    _beside_cbc("goal", "such a programme 20 times as fast", "certified", at_least=20),
    Statement("goal", "no dearer than any other variant where memory is tight", _TIGHT, OTHERS,
              "certified", "cost", at_most=1.0),
    Statement("goal", "reductions 50 times as fast as in Python", _LARGE_AMPLE, "reductions",
              "reductions-compiled", at_least=50),
)  # fmt: skip

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
    benchmarks=("blocks[blocks=2]/captured:1",),
    studies=(
        Study(_TIGHT, (*_LADDER, "ilp-cbc"), "little memory"),
        Study(_AMPLE, (*_LADDER, "ilp-cbc", *_RELAXED), "ample memory"),
        Study(_LARGE, ("descent", "descent-compiled", "certified"), "sixty blocks", large=True),
    ),
    statements=_STATEMENTS,
    place=60,
    abilities=Abilities(
        planning="planners.placement.implementation:PLANNING",
        capture="planners.placement.drop_in.accelerate:capturing",
        explain="planners.placement.explaining:explain",
        figures="planners.placement.implementation:figures",
    ),
)
