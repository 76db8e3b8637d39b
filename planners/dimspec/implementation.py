"""The dimspec family's work on problems and decisions."""

from operator import methodcaller

from planners.dimspec.decision import fingerprint, validate
from planners.dimspec.observer import observe
from planners.dimspec.problem import build
from planners.dimspec.quality import quality

__all__ = ["build", "facts", "fingerprint", "observe", "quality", "validate"]

facts = methodcaller("facts")
"""Return what to say about a problem, its size first."""
