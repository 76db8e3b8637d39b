"""How a program gets its communication: resharding, with a block that mirrors a C++ graph."""

# They register the variants, which are listed in this order.
from planners.reshard import published

# isort: split
from planners.reshard import beyond

# isort: split
from planners.reshard import paddle
from planners.reshard.family import FAMILY

__all__ = ["FAMILY", "beyond", "paddle", "published"]
