"""How each op runs on a mesh: DTensor's sharding propagation, and what makes it quicker."""

# They register the variants, which are listed in this order.
from planners.dtensor import published

# isort: split
from planners.dtensor import beyond
from planners.dtensor.family import FAMILY

__all__ = ["FAMILY", "beyond", "published"]
