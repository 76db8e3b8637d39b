"""The dimspec family's work on problems and decisions."""

from collections.abc import Mapping

from planners.dimspec.decision import fingerprint, validate
from planners.dimspec.observer import observe
from planners.dimspec.problem import DimSpecProblem, build
from planners.dimspec.quality import quality

__all__ = ["build", "facts", "fingerprint", "observe", "quality", "validate"]


def facts(problem: DimSpecProblem) -> Mapping[str, float | str]:
    """Return what to say about a problem, its number of conversions first."""
    return problem.facts()
