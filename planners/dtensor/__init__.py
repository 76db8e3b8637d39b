"""Sharding propagation of PyTorch's DTensor, and what makes it quicker."""

from planners.dtensor import variants  # registers them
from planners.dtensor.family import FAMILY

__all__ = ["FAMILY", "variants"]
