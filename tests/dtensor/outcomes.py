"""Observable properties of the results of calls, compared between torch and `accelerate()`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest import mock

import torch
from small_world import played
from torch.distributed.tensor import DTensor, _dispatch
from torch.testing._internal.two_tensor import TwoTensor

from planners.dtensor.accelerate import accelerate


def described(value: Any, has_values: bool = True) -> Any:
    """Return all observable properties of a value.

    Without `has_values`, elements of tensors and the texts of errors are left out.
    """
    if isinstance(value, list | tuple):
        return [described(part, has_values) for part in value]
    if isinstance(value, Exception):
        return type(value).__name__, has_values and str(value).partition("\n")[0]
    if not isinstance(value, torch.Tensor):
        return value if has_values else type(value)
    flags = [type(value), value.dtype, value.requires_grad, value.is_leaf, value.is_inference()]
    flags += [value.layout, value.device, value.is_neg(), value.is_quantized, value.is_nested]
    if isinstance(value, DTensor):
        spec = value._spec
        flags += [
            tuple(value.shape),
            value.stride(),
            value._is_view(),
            spec.mesh,
            *spec.tensor_meta,
        ]
        flags += [type(spec.tensor_meta.shape), spec.placements, str(spec.placements)]
        flags += [spec.shard_order, described(value._local_tensor, has_values)]
        return flags
    if type(value) is TwoTensor:
        return [flags, described(value.a, has_values), described(value.b, has_values)]
    if value.layout is torch.strided and not value.is_nested:
        flags += [tuple(value.shape), value.stride(), value.storage_offset(), value._is_view()]
    if has_values and not (value.is_meta or value.is_nested):  # torch may free a nested one's sizes
        flags.append(_elements(value))
    return flags


def _elements(value: torch.Tensor) -> bytes | str:
    with torch._C.DisableTorchFunction(), torch.no_grad():
        try:
            return value.detach().resolve_neg().numpy().tobytes()
        except (RuntimeError, TypeError):  # a type or layout that NumPy does not have
            return str(value.to_dense() if value.is_mkldnn else value)


def outcome(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the result of a call, or the error that it raises."""
    try:
        return function(*args, **options)
    except Exception as error:
        return type(error), str(error)


ACCELERATED: dict[str, Callable[[], accelerate]] = {
    "accelerated": accelerate,
    "checked": partial(accelerate, check=1),
}


def is_torchs(run: Callable[[], Any], times: int = 3) -> list[Any]:
    """Assert that calls have the same results or errors when accelerated; return torch's."""
    found = []
    for enter in (nullcontext, *ACCELERATED.values()):
        with played(enter) as accelerated:
            found.append([outcome(lambda: described(run())) for _ in range(times)])
            assert not (accelerated and accelerated.cache_info().differences)
    for made in found[1:]:
        assert made == found[0]
    return found[0]


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
