"""Torch's dispatch without a cache, or with another search for a strategy after a cache miss."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import _sharding_prop
from torch.distributed.tensor._op_schema import OpSchema, OpStrategy, OutputSharding, StrategyType
from torch.distributed.tensor._ops import utils
from torch.distributed.tensor._ops.single_dim_strategy import (
    _dijkstra_expand_single_dim_strategy_to_mesh,
    _SingleDimStrategyInfo,
)

from planners.dtensor.dispatch.base import Dispatch
from planners.dtensor.dispatch.handlers import Handlers, answering, torchs_handlers
from planners.dtensor.dispatch.specs import SpecTable
from planners.dtensor.dispatch.torch_path import PROPAGATOR, is_watched, traits
from planners.dtensor.search import cheapest, staying, tensor_meta
from planners.instruments import replaced

_expand_exhaustively = _sharding_prop._expand_single_dim_strategy_to_mesh


class Uncached(Dispatch):
    """Torch's dispatch with its cache emptied before each op, so every op is a cache miss."""

    def installed(self) -> AbstractContextManager[None]:
        """Clear the C++ cache whenever C++ asks for handlers, as C++ does before each look-up."""

        def answer() -> Handlers:
            torch._C._clear_DTensor_sharding_propagator_cache()
            return torchs_handlers()

        return answering(answer)


class Dijkstra(Dispatch):
    """Torch's dispatch with its search by Dijkstra's algorithm, which torch ships but never calls.

    In-place ops, ops with `out`, and ops for which that search fails use the exhaustive search.
    """

    def installed(self) -> AbstractContextManager[Any]:
        """Let torch expand strategies by Dijkstra's algorithm inside the context."""
        return replaced(
            [(_sharding_prop, "_expand_single_dim_strategy_to_mesh", _expand_by_dijkstra)]
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
        with suppress(Exception):  # torch's function is unfinished, and raises various errors
            found = _dijkstra_expand_single_dim_strategy_to_mesh(*inputs)
        return found or exhaustively(*args)

    return expanded


class ExactMiss(Dispatch):
    """A dispatch with a faster search after a miss, which makes the exhaustive search's choice.

    It uses lower bounds on costs, the meta device for an op's results, and a table of specs.
    """

    def __init__(self) -> None:
        self._specs = SpecTable()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let torch use the faster search after a miss inside the context."""
        with exact_misses(), self._specs.filled():
            yield

    def clear(self) -> None:
        """Empty the table of specs."""
        self._specs.clear()


def exact_misses(
    is_excluded: Callable[[OpOverload], bool] = lambda op: False,
) -> AbstractContextManager[None]:
    """Let torch decide ops after a miss by this package's searches, except the excluded ops.

    The answers of `is_excluded` may change inside the context. Torch's own search also runs while
    its thread is watched, as by a trace. A module that has imported one of the replaced functions
    of torch by name still calls the original.
    """
    decide_by_torch = PROPAGATOR.propagate_op_sharding_non_cached
    ask_fake_tensors = PROPAGATOR._propagate_tensor_meta_non_cached
    search_all = utils.expand_to_full_mesh_op_strategy

    def is_torchs(schema: OpSchema) -> bool:
        return is_watched() or is_excluded(schema.op)

    def decide(schema: OpSchema) -> OutputSharding:
        made = None if is_torchs(schema) else staying.decide_without_redistribution(schema)
        return decide_by_torch(schema) if made is None else made

    def ask(schema: OpSchema) -> Any:
        meta = None if is_torchs(schema) else tensor_meta.plain_meta(schema)
        return ask_fake_tensors(schema) if meta is None else meta

    def search(mesh: DeviceMesh, schema: OpSchema, *rest: Any, **options: Any) -> OpStrategy:
        expand = search_all if is_torchs(schema) else cheapest.cheapest_strategy
        return expand(mesh, schema, *rest, **options)

    return replaced(
        (
            (PROPAGATOR, "propagate_op_sharding_non_cached", decide),
            (PROPAGATOR, "_propagate_tensor_meta_non_cached", ask),
            (utils, "expand_to_full_mesh_op_strategy", search),
        )
    )
