"""Search for changes that make a decision possible, with the family's function."""

from collections.abc import Callable
from typing import Any

from harness.contract.abilities.remedies import Remedies, Remedy
from harness.contract.declarations import Planning
from harness.contract.family import load
from harness.measuring.request import BUILDING, Request

SECONDS = 20.0


def find_remedies(
    request: Request, begins: Callable[[str], None] = lambda stage: None
) -> Remedies[Any, Any] | None:
    """Return the remedies for a problem without a decision; None if the family searches for none.

    Args:
        request: the problem.
        begins: called with each stage that begins.
    """
    planning: Planning[Any, Any] | None = load(request.family.abilities.planning)
    if planning is None or planning.remedies is None:
        return None
    begins(BUILDING)
    problem = request.build()
    begins("looking for remedies")
    return planning.remedies(problem, SECONDS)


def fixed(request: Request, remedy: Remedy[Any, Any]) -> dict[str, Any]:
    """Return the document of a remedy's decision, after checking it on the changed problem."""
    planning: Planning[Any, Any] = load(request.family.abilities.planning)
    request.family.work.validate(remedy.problem, remedy.decision)
    return dict(planning.document(remedy.problem, remedy.decision))
