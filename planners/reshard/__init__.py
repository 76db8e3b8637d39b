"""The reshard family: communication for a program, by a block that mirrors a C++ graph."""

from planners.reshard.family import FAMILY
from planners.reshard.variants import paddle, resharders  # registers them

__all__ = ["FAMILY", "paddle", "resharders"]
