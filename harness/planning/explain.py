"""Plan once, or twice with another variant beside it, and let the family say why."""

from dataclasses import dataclass
from typing import Any

from harness.contract import Family
from harness.contract.abilities.explanation import Explanation, Question
from harness.contract.family import load
from harness.measuring.request import Request
from harness.measuring.timing.clock import Clock, SystemClock
from harness.model.errors import UsageError
from harness.model.ids import CellId, WorkloadSpec
from harness.model.topology import Topology
from harness.planning.plan import check_installed, decide


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
    family: Family[Any, Any],
    variant: str,
    workload: WorkloadSpec,
    topology: Topology,
    against: str = "",
    rank: int | None = None,
    top: int = 5,
    clock: Clock | None = None,
) -> Explained:
    """Plan once in this process with each variant, and explain what the first one decided.

    Raises:
        UsageError: the family explains nothing, a variant is unknown or the same twice, there is no
            such rank, or `top` is below 1.
        InfeasibleDecision: a decision cannot be carried out.
        ShardbenchError: a variant is not installed, or found no decision.
    """
    explanation_of = load(family.abilities.explain)
    if explanation_of is None:
        raise UsageError(f"Family '{family.name}' does not explain its decisions.")
    chosen = family.find(variant)
    other = family.find(against) if against else None
    if chosen is other:
        raise UsageError(f"--against takes another variant than '{chosen.name}' itself.")
    if top < 1:
        raise UsageError(f"--top must be at least 1, not {top}.")
    for each in filter(None, (chosen, other)):
        check_installed(each)
    clock = clock or SystemClock()
    cell = Request(family, workload, topology).cell_id(chosen.name)
    problem = family.work.build(workload, topology)
    decision, started, ended = decide(family, chosen, problem, clock)
    question: Question[Any] = Question(rank, top)
    if other is not None:
        question = Question(rank, top, other.name, decide(family, other, problem, clock)[0])
    return Explained(cell, against, explanation_of(problem, decision, question), ended - started)
