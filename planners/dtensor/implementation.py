"""The dtensor family's functions on problems and decisions. This module imports torch."""

from operator import methodcaller

from planners.dtensor.decision import fingerprint, validate
from planners.dtensor.observer import observe
from planners.dtensor.problem import build
from planners.dtensor.quality import quality

__all__ = ["build", "facts", "fingerprint", "observe", "quality", "validate"]

facts = methodcaller("facts")
"""Return the facts of a problem, its size first."""
