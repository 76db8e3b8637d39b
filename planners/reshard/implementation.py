"""The reshard family's work on problems and decisions; it imports torch."""

from collections.abc import Mapping

from planners.reshard.decision import fingerprint, validate
from planners.reshard.observer import observe
from planners.reshard.problem import ReshardProblem, build
from planners.reshard.quality import quality

__all__ = ["build", "facts", "fingerprint", "observe", "quality", "validate"]


def facts(problem: ReshardProblem) -> Mapping[str, float | str]:
    """Return what to say about a problem, its number of ops first."""
    return problem.facts()
