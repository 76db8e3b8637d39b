"""Count collectives, and the bytes that this rank puts into them."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch.distributed as dist
from torch.distributed import _functional_collectives
from torch.distributed.tensor import placement_types

from planners.instruments import replaced

_COLLECTIVES = (
    (_functional_collectives, "all_gather_single", 0),
    (_functional_collectives, "all_reduce", 0),
    (_functional_collectives, "reduce_scatter_single", 0),
    (placement_types, "shard_dim_alltoall", 0),
    (dist, "all_reduce", 0),
    (dist, "all_to_all_single", 1),
)
"""The functions by which DTensor and our own code communicate, with the place of the input."""


def counted_in(counters: Counter[str]) -> AbstractContextManager[None]:
    """Inside the context, count calls as `collectives`, and their inputs' `collective_bytes`."""

    def counted(function: Callable[..., Any], place: int) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            counters["collectives"] += 1
            counters["collective_bytes"] += args[place].numel() * args[place].element_size()
            return function(*args, **kwargs)

        return called

    return replaced(
        (owner, name, counted(getattr(owner, name), place)) for owner, name, place in _COLLECTIVES
    )
