"""How a tensor gets from one sharding to another: ColossalAI's search for conversions."""

from planners.dimspec.family import FAMILY
from planners.dimspec.variants import colossalai, searches  # registers them

__all__ = ["FAMILY", "colossalai", "searches"]
