"""The dtensor family's work on problems and decisions; it imports torch."""

from collections.abc import Mapping

from planners.dtensor import decision as decisions
from planners.dtensor import quality as qualities
from planners.dtensor.decision import Decision, fingerprint
from planners.dtensor.observer import observe
from planners.dtensor.problem import DTensorProblem, build
from planners.dtensor.programs.world import playing_one_rank

__all__ = ["build", "facts", "fingerprint", "observe", "quality", "validate"]


def facts(problem: DTensorProblem) -> Mapping[str, float | str]:
    """Return what to say about a problem, its number of ops first."""
    return problem.facts()


def validate(_: DTensorProblem, decision: Decision) -> None:
    """Raise InfeasibleDecision where a decision is not one for every op."""
    decisions.validate(decision)


def quality(problem: DTensorProblem, decision: Decision) -> Mapping[str, float]:
    """Rate a decision by torch's model of collectives, on the problem's hosts."""
    with playing_one_rank(problem.ranks_per_host):
        return qualities.quality(decision)
