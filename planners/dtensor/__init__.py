"""Sharding propagation of PyTorch's DTensor, and quicker ways to do it."""

from planners.dtensor import variants  # registers them
from planners.dtensor.family import FAMILY

__all__ = ["FAMILY", "variants"]
