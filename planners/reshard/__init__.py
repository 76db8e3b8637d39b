"""The reshard family: planners that insert communication ops into a distributed program."""

from planners.reshard.family import FAMILY
from planners.reshard.variants import paddle, resharders  # registers them

__all__ = ["FAMILY", "paddle", "resharders"]
