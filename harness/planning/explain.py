"""Plan with one variant or two, and let the family explain the decision."""

from dataclasses import dataclass
from typing import Any

from harness.contract.abilities.explanation import Explanation, Question
from harness.contract.family import load
from harness.measuring.request import Request
from harness.measuring.timing.clock import Clock, SystemClock
from harness.model.errors import UsageError
from harness.model.ids import CellId
from harness.planning.plan import decide


@dataclass(frozen=True, slots=True)
class Explained:
    """An explanation of a cell's decision, perhaps `against` that of another variant.

    `planning_s` is wall seconds of the call that decided.
    """

    cell: CellId
    against: str
    explanation: Explanation
    planning_s: float


def explain(
    request: Request, rank: int | None = None, top: int = 5, clock: Clock | None = None
) -> Explained:
    """Plan once in this process with each variant, and explain the decision of the first one.

    Args:
        request: the problem, one variant, and perhaps another one that it is set `against`.
        rank: the rank to look at; the heaviest where it is None.
        top: how many items to show in detail.
        clock: the clock to time with, by default the machine's.

    Raises:
        UsageError: the family explains nothing, a variant is unknown or the same twice, there is no
            such rank, or `top` is below 1.
        InfeasibleDecision: a decision cannot be carried out.
        ShardbenchError: a variant is not installed, or found no decision.
    """
    family = request.family
    explanation_of = load(family.abilities.explain)
    if explanation_of is None:
        raise UsageError(f"Family '{family.name}' does not explain its decisions.")
    chosen = family.find(request.variants[0])
    other = family.find(request.against) if request.against else None
    if chosen is other:
        raise UsageError(f"--against takes another variant than '{chosen.name}' itself.")
    if top < 1:
        raise UsageError(f"--top must be at least 1, not {top}.")
    for variant in filter(None, (chosen, other)):
        variant.check_installed()
    clock = clock or SystemClock()
    cell = request.cell_id(chosen.name)
    problem = request.build()
    decision, started, ended = decide(family, chosen, problem, clock)
    question: Question[Any] = Question(rank, top)
    if other is not None:
        question = Question(rank, top, other.name, decide(family, other, problem, clock)[0])
    explanation = explanation_of(problem, decision, question)
    return Explained(cell, request.against, explanation, ended - started)
