"""Placement of embedding tables: TorchRec's planner, faster versions of it, and better plans."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planners.embedding.family import FAMILY as FAMILY


def __getattr__(name: str) -> Any:
    """Import `FAMILY` on first access, since the drop-in planner and kernels do not need it."""
    if name != "FAMILY":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from planners.embedding.family import FAMILY
    from planners.embedding.variants import declared  # noqa: F401  # registers them

    return FAMILY
