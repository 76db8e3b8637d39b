"""The placement family: planners that choose a sharding for each op of a model."""

from planners.placement import variants  # registers them
from planners.placement.family import FAMILY

__all__ = ["FAMILY", "variants"]
