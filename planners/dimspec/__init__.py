"""The dimspec family: searches for steps that convert a tensor from one sharding to another."""

from planners.dimspec.family import FAMILY
from planners.dimspec.variants import colossalai, searches  # registers them

__all__ = ["FAMILY", "colossalai", "searches"]
