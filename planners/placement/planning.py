"""Plans for use: the document, and the peak of memory."""

from typing import Any

from msgspec import Struct, to_builtins

from harness.contract import Planning, RankTable
from planners.placement.implementation import quality
from planners.placement.problem import PlacementProblem, Plan, peak_of

_GIB = 2**30


class PlanDocument(Struct, frozen=True, kw_only=True):
    """A plan as `shardbench plan` writes it; `states` is the form that the contest takes."""

    format: str = "shardbench-states"
    version: int = 1
    problem: str
    quality: dict[str, float]
    states: list[int]


def document(problem: PlacementProblem, decision: Plan) -> dict[str, Any]:
    """Return a plan as plain JSON types, in the form of `PlanDocument`."""
    rated = dict(quality(problem, decision))
    made = PlanDocument(problem=problem.name, quality=rated, states=decision.choice.tolist())
    builtins: dict[str, Any] = to_builtins(made)
    return builtins


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
