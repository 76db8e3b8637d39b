"""How a chain of layers becomes the stages of a pipeline."""

from own_planners.pipeline import variants  # registers them, in the order in which they are listed
from own_planners.pipeline.family import FAMILY

__all__ = ["FAMILY", "variants"]
