"""The placement of embedding tables: TorchRec's planner, its speed-ups, and better plans."""

from planners.embedding import variants
from planners.embedding.family import FAMILY

__all__ = ["FAMILY", "variants"]
