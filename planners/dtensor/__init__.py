"""Sharding propagation of PyTorch's DTensor, and faster implementations of it."""

from planners.dtensor import variants  # the import registers the variants
from planners.dtensor.family import FAMILY

__all__ = ["FAMILY", "variants"]
