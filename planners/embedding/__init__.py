"""Where embedding tables go: TorchRec's planner, its published speed-ups, and what surpasses it."""

from planners.embedding import beyond, dynamic, ladder, proposers  # they register the variants
from planners.embedding.family import FAMILY

__all__ = ["FAMILY", "beyond", "dynamic", "ladder", "proposers"]
