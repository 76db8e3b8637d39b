"""The placement of embedding tables: TorchRec's planner, its speed-ups, and better plans."""

from planners.embedding.family import FAMILY
from planners.embedding.variants import ladder, planners  # registers them, the ladder first

__all__ = ["FAMILY", "ladder", "planners"]
