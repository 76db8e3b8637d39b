"""Observable properties of the results of calls, in a form that can be compared."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from small_world import running
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, _dispatch

from planners.dtensor.dispatch.base import Dispatch

Make = Callable[[DeviceMesh], Any]


def described(value: Any, has_values: bool = True) -> Any:
    """Return all observable properties of a value; elements of tensors only with `has_values`."""
    if isinstance(value, list | tuple):
        return [described(part, has_values) for part in value]
    if isinstance(value, Exception):
        return type(value).__name__, str(value).partition("\n")[0]
    if not isinstance(value, torch.Tensor):
        return value if has_values else type(value)
    found = [type(value), tuple(value.shape), value.stride(), value.dtype, value.requires_grad]
    found += [value.is_leaf, value._is_view(), value.is_inference()]
    local = value
    if isinstance(value, DTensor):
        spec, local = value._spec, value._local_tensor
        found += [spec.placements, spec.shard_order, spec.mesh, *spec.tensor_meta]
        found += [type(local), tuple(local.shape), local.stride(), local.dtype]
        found.append(local.storage_offset())
    if has_values:
        found.append(local.detach().numpy().tobytes())
    return found


def outcome(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the result of a call, or the error that it raises."""
    try:
        return function(*args, **options)
    except Exception as error:
        return type(error), str(error)


def results_under(dispatch: Dispatch, mesh: DeviceMesh, make: Make, times: int = 3) -> list[Any]:
    """Describe the results or errors of several calls under one installation of a dispatch."""
    with running(dispatch):
        return [outcome(lambda: described(make(mesh))) for _ in range(times)]


@contextmanager
def redistributions_counted() -> Iterator[list[int]]:
    """Count redistributions for ops, since fake collectives return made-up values."""
    count = [0]
    redistribute = _dispatch.redistribute_local_tensor

    def counted(*args: Any, **kwargs: Any) -> torch.Tensor:
        count[0] += 1
        return redistribute(*args, **kwargs)

    with mock.patch.object(_dispatch, "redistribute_local_tensor", counted):
        yield count
