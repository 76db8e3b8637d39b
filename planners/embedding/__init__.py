"""Where embedding tables go: TorchRec's planner, its published speed-ups, and what surpasses it."""

from planners.embedding import variants
from planners.embedding.family import FAMILY

__all__ = ["FAMILY", "variants"]
