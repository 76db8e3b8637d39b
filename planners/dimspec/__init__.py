"""How a tensor gets from one sharding to another: ColossalAI's search for conversions."""

# They register the variants, which are listed in this order.
from planners.dimspec import published

# isort: split
from planners.dimspec import beyond

# isort: split
from planners.dimspec import colossalai
from planners.dimspec.family import FAMILY

__all__ = ["FAMILY", "beyond", "colossalai", "published"]
