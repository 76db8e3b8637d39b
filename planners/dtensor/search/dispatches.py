"""Torch's dispatch with nothing but misses, or with another search for a strategy after one."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from unittest import mock

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import _sharding_prop
from torch.distributed.tensor._dispatch import OpDispatcher
from torch.distributed.tensor._op_schema import OpSchema, StrategyType
from torch.distributed.tensor._ops.single_dim_strategy import (
    _dijkstra_expand_single_dim_strategy_to_mesh,
    _SingleDimStrategyInfo,
)

from planners.dtensor.dispatch.base import Dispatch
from planners.dtensor.dispatch.handlers import Below, Handlers, consulted
from planners.dtensor.dispatch.specs import SpecTable
from planners.dtensor.dispatch.torch_path import traits
from planners.dtensor.search.cheapest import searched_exactly
from planners.dtensor.search.staying import decided_at_once
from planners.dtensor.search.tensor_meta import asked_directly

_expand_exhaustively = _sharding_prop._expand_single_dim_strategy_to_mesh


class Uncached(Dispatch):
    """Every op is a miss."""

    def installed(self) -> AbstractContextManager[None]:
        """Clear the C++ cache whenever C++ asks for handlers, which it does before it opens it."""

        def forgetting(below: Below) -> Callable[[OpDispatcher], Handlers]:
            def answer(_: OpDispatcher) -> Handlers:
                torch._C._clear_DTensor_sharding_propagator_cache()
                return below()

            return answer

        return consulted(forgetting)


class Dijkstra(Dispatch):
    """The search by Dijkstra's algorithm that torch ships and calls nowhere.

    Ops in place, with `out`, or without a strategy that it finds are expanded exhaustively.
    """

    def installed(self) -> AbstractContextManager[Any]:
        """Let torch expand strategies with it."""
        return mock.patch.object(
            _sharding_prop, "_expand_single_dim_strategy_to_mesh", _expand_by_dijkstra
        )


def _expand_by_dijkstra(
    mesh: DeviceMesh, schema: OpSchema, strategy: _SingleDimStrategyInfo, output_meta: Any
) -> Callable[..., StrategyType]:
    inputs = mesh, schema, strategy, output_meta
    exhaustively: Callable[..., StrategyType] = _expand_exhaustively(*inputs)
    if traits(schema.op).is_in_place or traits(schema.op).is_out_variant:
        return exhaustively

    def expanded(*args: Any) -> StrategyType:
        found = None
        with suppress(Exception):  # it is not finished upstream, and says so by all kinds of errors
            found = _dijkstra_expand_single_dim_strategy_to_mesh(*inputs)
        return found or exhaustively(*args)

    return expanded


class ExactMiss(Dispatch):
    """The exhaustive search's very choice, by bounds, the meta device and a table of specs."""

    def __init__(self) -> None:
        self._specs = SpecTable()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let torch decide with it after a miss."""
        with searched_exactly(), asked_directly(), decided_at_once(), self._specs.filled():
            yield

    def clear(self) -> None:
        """Forget the specs."""
        self._specs.clear()
