"""The dtensor family's functions on problems and decisions. This module imports torch."""

from operator import methodcaller

from planners.dtensor.counting.observer import observe as observe
from planners.dtensor.decision import fingerprint as fingerprint, validate as validate
from planners.dtensor.problem import build as build
from planners.dtensor.quality import quality as quality

facts = methodcaller("facts")
"""Return the facts of a problem, its size first."""
