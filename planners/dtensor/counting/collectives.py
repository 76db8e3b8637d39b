"""Count collectives, and the bytes that this rank puts into them."""

from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from torch.distributed import _functional_collectives
from torch.distributed.tensor import placement_types

from harness.contract import Recorder

_COLLECTIVES = (
    *((_functional_collectives, name, 0) for name in ("all_gather_single", "all_reduce")),
    *(
        (_functional_collectives, name, 0)
        for name in ("all_gather_tensor", "reduce_scatter_tensor")
    ),
    (_functional_collectives, "reduce_scatter_single", 0),
    (placement_types, "shard_dim_alltoall", 0),
    (dist, "all_reduce", 0),
    *((dist, name, 1) for name in ("all_gather_into_tensor", "all_gather_single")),
    *((dist, name, 1) for name in ("reduce_scatter_tensor", "reduce_scatter_single")),
    (dist, "all_to_all_single", 1),
)
"""The functions by which DTensor, FSDP2 and our own code communicate, and their input's place.

A release of torch has some of them. Where one calls another, the outermost call counts.
"""


def counted_collectives(recorder: Recorder) -> Iterator[tuple[Any, str, Any]]:
    """Yield the functions as (owner, name, function that counts its calls and bytes)."""
    is_inside = False

    def counted(function: Callable[..., Any], place: int) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            nonlocal is_inside
            if is_inside or recorder.current is None:
                return function(*args, **kwargs)
            tensor = args[place] if len(args) > place else kwargs["input"]
            recorder.counters["collectives"] += 1
            recorder.counters["collective_bytes"] += tensor.numel() * tensor.element_size()
            is_inside = True
            try:
                return function(*args, **kwargs)
            finally:
                is_inside = False

        return called

    for owner, name, place in _COLLECTIVES:
        if hasattr(owner, name):
            yield owner, name, counted(getattr(owner, name), place)
