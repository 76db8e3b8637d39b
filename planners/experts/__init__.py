"""The experts family: planners that place replicas of a model's experts on GPUs."""

from planners.experts.family import FAMILY
from planners.experts.variants import ladder, ours, upstreams  # registers them

__all__ = ["FAMILY", "ladder", "ours", "upstreams"]
