"""The reshard family's work on problems and decisions; it imports torch."""

from operator import methodcaller

from planners.reshard.decision import fingerprint, validate
from planners.reshard.observer import observe
from planners.reshard.problem import build
from planners.reshard.quality import quality

__all__ = ["build", "facts", "fingerprint", "observe", "quality", "validate"]

facts = methodcaller("facts")
"""Return what to say about a problem, its size first."""
