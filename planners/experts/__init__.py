"""The experts family: planners that place replicas of a model's experts on GPUs."""

from planners.experts import variants  # registers them
from planners.experts.family import FAMILY

__all__ = ["FAMILY", "variants"]
