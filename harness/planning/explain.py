"""Plan with one or two variants, and explain the decision with the family's function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.contract.abilities.explanation import Explanation, Question
from harness.contract.family import load
from harness.measuring.request import BUILDING, Request
from harness.measuring.timing.turns import SystemClock
from harness.model.errors import UsageError
from harness.model.ids import CellId
from harness.planning.plan import decide


@dataclass(frozen=True, slots=True)
class Explained:
    """An explanation of a cell's decision, or of its difference from the decision of `against`.

    `against` is the other variant, empty if there is none. `planning_s` is the wall time in seconds
    of the planner call.
    """

    cell: CellId
    against: str
    explanation: Explanation
    planning_s: float


def explain(
    request: Request,
    rank: int | None = None,
    top: int = 5,
    table: str = "",
    clock: SystemClock | None = None,
    begins: Callable[[str], None] = lambda stage: None,
) -> Explained:
    """Plan once in this process with each variant, and explain the first variant's decision.

    Args:
        request: the problem, one variant, and optionally a variant `against` to compare it with.
        rank, top, table: see `Question`.
        clock: the clock for timing, by default the machine's.
        begins: called with each stage that begins, in a few words.

    Raises:
        UsageError: the family explains no decisions, or no tables, a variant is unknown, both
            variants are the same, the rank or table does not exist, or `top` is below 1.
        InfeasibleDecision: a decision is invalid.
        ShardbenchError: a variant is not installed, or found no decision.
    """
    family, abilities = request.family, request.family.abilities
    explanation_of = load(abilities.explain_table if table else abilities.explain)
    if explanation_of is None:
        parts = "single tables" if table else "its decisions"
        raise UsageError(f"Family '{family.name}' does not explain {parts}.")
    if table and (rank is not None or request.against):
        raise UsageError("--table takes neither --rank nor --against.")
    chosen = family.find(request.variants[0])
    other = family.find(request.against) if request.against else None
    if chosen is other:
        raise UsageError(f"--against takes another variant than '{chosen.name}' itself.")
    if top < 1:
        raise UsageError(f"--top must be at least 1, not {top}.")
    ranks = request.topology.gpus
    if rank is not None and not 0 <= rank < ranks:
        raise UsageError(f"There is no rank {rank}; ranks are from 0 to {ranks - 1}.")
    for variant in filter(None, (chosen, other)):
        variant.check_installed()
    clock = clock or SystemClock()
    cell = request.cell_id(chosen.name)
    begins(BUILDING)
    problem = request.build()
    begins(f"planning with {chosen.name}")
    decision, started, ended = decide(family, chosen, problem, clock)
    question: Question[Any] = Question(rank, top, table=table)
    if other is not None:
        begins(f"planning with {other.name}")
        question = Question(rank, top, other.name, decide(family, other, problem, clock)[0])
    begins("explaining the decision")
    explanation = explanation_of(problem, decision, question)
    return Explained(cell, request.against, explanation, ended - started)
