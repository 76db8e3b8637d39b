"""The placement of embedding tables: TorchRec's planner, its speed-ups, and better plans."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planners.embedding.family import FAMILY as FAMILY


def __getattr__(name: str) -> Any:
    """Load the family when it is asked for: the drop-ins and the kernels do without it."""
    if name != "FAMILY":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from planners.embedding.family import FAMILY
    from planners.embedding.variants import ladder, planners  # noqa: F401  # registers them in order

    return FAMILY
