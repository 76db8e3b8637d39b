"""The variants, which register in the order in which they are listed: the ladder comes first."""

from planners.embedding.variants import ladder, planners

__all__ = ["ladder", "planners"]
