"""The dimspec family: searches for steps that convert a tensor from one sharding to another."""

from planners.dimspec import variants  # registers them
from planners.dimspec.family import FAMILY

__all__ = ["FAMILY", "variants"]
