"""The reshard family: planners that insert communication ops into a distributed program."""

from planners.reshard import variants  # registers them
from planners.reshard.family import FAMILY

__all__ = ["FAMILY", "variants"]
