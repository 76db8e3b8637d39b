"""Search for changes that make a decision possible, with the family's function."""

from collections.abc import Callable
from typing import Any

from harness.contract.abilities.remedies import Remedies, Remedy
from harness.contract.declarations import Planning
from harness.contract.family import load
from harness.measuring.request import BUILDING, Request
from harness.planning.plan import Planned

SECONDS = 20.0


def find_remedies(
    request: Request, begins: Callable[[str], None] = lambda stage: None
) -> Remedies[Any, Any]:
    """Return the remedies for a problem without a decision; none if the family searches for none.

    Args:
        request: the problem.
        begins: called with each stage that begins.
    """
    planning: Planning[Any, Any] | None = load(request.family.abilities.planning)
    if planning is None or planning.remedies is None:
        return Remedies((), (), ())
    begins(BUILDING)
    problem = request.build()
    begins("looking for remedies")
    return planning.remedies(problem, SECONDS)


def fixed(request: Request, remedy: Remedy[Any, Any], planning_s: float) -> Planned:
    """Return the record of a remedy's decision, after checking it on the changed problem."""
    planning: Planning[Any, Any] = load(request.family.abilities.planning)
    problem, decision = remedy.problem, remedy.decision
    request.family.work.validate(problem, decision)
    return Planned.of(
        request, planning.variant, problem, decision, planning_s, changes=remedy.changes
    )
