"""Where embedding tables go: TorchRec's planner, its published speed-ups, and what surpasses it."""

# They register the variants, which are listed in this order.
from planners.embedding import ladder, proposers

# isort: split
from planners.embedding import dynamic

# isort: split
from planners.embedding import as_captured, beyond
from planners.embedding.family import FAMILY

__all__ = ["FAMILY", "as_captured", "beyond", "dynamic", "ladder", "proposers"]
