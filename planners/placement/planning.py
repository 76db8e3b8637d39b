"""Plans for use: the document, and the peak of memory."""

from typing import Any

from harness.contract import Planning, RankTable
from planners.placement.implementation import quality
from planners.placement.problem import PlacementProblem, Plan, peak_of

_GIB = 2**30


def document(problem: PlacementProblem, decision: Plan) -> dict[str, Any]:
    """Return a plan as `shardbench plan` writes it; `states` is the form that the contest takes."""
    return {
        "format": "shardbench-states",
        "version": 1,
        "problem": problem.name,
        "quality": dict(quality(problem, decision)),
        "states": decision.choice.tolist(),
    }


def _ranks(problem: PlacementProblem, decision: Plan) -> RankTable:
    """Return one row: every device has the same memory in use."""
    return RankTable(
        columns=("peak GiB",),
        rows=((peak_of(problem, decision.choice) / _GIB,),),
        capacities=(problem.limit / _GIB,),
        bar="peak GiB",
    )


PLANNING: Planning[PlacementProblem, Plan] = Planning(
    variant="certified",
    document=document,
    ranks=_ranks,
    limited=PlacementProblem.limited,
)
