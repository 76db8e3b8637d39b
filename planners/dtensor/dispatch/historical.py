"""Dispatch in Python as in earlier releases of torch, one class for each published change.

Only the dispatch is historical. Specs, strategies and decisions after a miss come from the
installed torch.
"""

from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpInfo, OpSchema, OutputSharding
from torch.distributed.tensor._redistribute import redistribute_local_tensor
from torch.distributed.tensor._utils import try_find_mesh_from_args
from torch.utils import _pytree as pytree

from planners.dtensor.dispatch import torch_path
from planners.dtensor.dispatch.base import CacheInfo, Dispatch
from planners.dtensor.dispatch.handlers import by_torch, handling
from planners.dtensor.dispatch.torch_path import DISPATCHER, PROPAGATOR, Args, Kwargs


class Handled(Dispatch):
    """A dispatch of all ops with a strategy, except random ops and ops under dispatch modes."""

    def installed(self) -> AbstractContextManager[Any]:
        """Register the handler for these ops inside the context."""
        return handling(torch_path.ops_to_take_over(), lambda op: self._dispatch)

    def _dispatch(self, op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        raise NotImplementedError


class LruCached(Handled):
    """A dispatch that caches its decisions in an unbounded `lru_cache`."""

    def __init__(self) -> None:
        self._decide = lru_cache(None)(self._decided)

    def clear(self) -> None:
        """Forget all decisions."""
        self._decide.cache_clear()

    def cache_info(self) -> CacheInfo:
        """Return the counts of the cache."""
        hits, misses, _, entries = self._decide.cache_info()
        return CacheInfo(hits, misses, entries, 0)

    @staticmethod
    def _decided(schema: Any) -> OutputSharding:
        return PROPAGATOR.propagate_op_sharding_non_cached(schema)


def _spec(value: Any, op: OpOverload, mesh: DeviceMesh) -> Any:
    """Return a tensor's spec, and any other value unchanged."""
    if isinstance(value, DTensor):
        return value._spec
    if isinstance(value, torch.Tensor):
        return DISPATCHER._try_replicate_spec_for_scalar_tensor(op, value, mesh)
    return value


def _local(value: Any) -> Any:
    return value._local_tensor if isinstance(value, DTensor) else value


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def _schema(op: OpOverload, args: Args, kwargs: Kwargs) -> OpSchema:
    return OpSchema(op, args, kwargs, schema_info=torch_path.schema_info(op))


class _FirstKey:
    """The key of `FirstCache`: hashed by the tensors' specs each time, compared by all values."""

    def __init__(self, op: OpOverload, args: Args, kwargs: Kwargs) -> None:
        self.op, self.args, self.kwargs = op, args, kwargs

    def __hash__(self) -> int:
        specs = tuple(arg._hash_impl() for arg in self.args if isinstance(arg, DTensorSpec))
        return hash((self.op._schema, specs, frozenset(self.kwargs)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _FirstKey)
            and self.op._schema == other.op._schema
            and self.args == other.args
            and self.kwargs == other.kwargs
        )


class FirstCache(Handled):
    """Dispatch before pytorch/pytorch#107305, as in torch 2.0.1.

    It makes eleven passes over the arguments and two look-ups in its dictionary. On a hit, every
    tensor passes through a redistribution that moves nothing: torch skipped it only if the
    suggested schema and the op's schema were the same object. Views put the local shape into the
    cached key, so views never hit.
    """

    def __init__(self) -> None:
        self._kept: dict[_FirstKey, tuple[_FirstKey, OutputSharding]] = {}
        self._hits = self._misses = 0

    def clear(self) -> None:
        """Forget all decisions."""
        self._kept.clear()
        self._hits = self._misses = 0

    def cache_info(self) -> CacheInfo:
        """Return the counts of the unbounded dictionary."""
        return CacheInfo(self._hits, self._misses, len(self._kept), 0)

    def _dispatch(self, op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        leaves, _ = pytree.tree_flatten(args)
        mesh = try_find_mesh_from_args(op, leaves)
        for leaf in leaves:
            if isinstance(leaf, DTensor) and leaf.device_mesh != mesh:
                return by_torch(op, args, kwargs)
        args_schema = pytree.tree_map(lambda value: _spec(value, op, mesh), args)
        kwargs_schema = pytree.tree_map(lambda value: _spec(value, op, mesh), kwargs)
        key = _FirstKey(op, args_schema, kwargs_schema)
        asked, sharding = self._decided(key)

        flat_schema, _ = pytree.tree_flatten(args_schema)
        flat_kwargs_schema, _ = pytree.tree_flatten(kwargs_schema)
        local_args = self._localised(args, flat_schema, moves=asked is not key)
        local_kwargs = self._localised(kwargs, flat_kwargs_schema, moves=asked is not key)
        if sharding.needs_redistribute:
            # Only torch knows how to rewrite the arguments of each kind of op.
            info = DISPATCHER.unwrap_to_op_info(op, args, kwargs)
            return torch_path.carry_out(op, args, kwargs, info, sharding)
        results = op(*local_args, **local_kwargs)
        return torch_path.wrap(op, args, kwargs, mesh, sharding, results)

    def _decided(self, key: _FirstKey) -> tuple[_FirstKey, OutputSharding]:
        if key in self._kept:
            self._hits += 1
            return self._kept[key]
        self._misses += 1
        sharding = PROPAGATOR.propagate_op_sharding_non_cached(
            _schema(key.op, key.args, key.kwargs)
        )
        self._kept[key] = key, sharding
        if PROPAGATOR.op_to_shape_and_stride_idx.get(key.op) == 1:
            shape = sharding.output_spec.shape  # or the shape that this rank passes to the view
            if sharding.use_val_from_redistribute_schema:
                shape = sharding.redistribute_schema.args_schema[1]
            key.args = (key.args[0], tuple(shape), *key.args[2:])
        return key, sharding

    def _localised(self, values: Any, flat_schema: list[Any], moves: bool) -> Any:
        flat, structure = pytree.tree_flatten(values)
        local = []
        for value, spec in zip(flat, flat_schema, strict=True):
            if moves and isinstance(value, DTensor):
                moved = redistribute_local_tensor(value._local_tensor, value._spec, spec)
                value = DTensor(moved, spec, requires_grad=moved.requires_grad)
            local.append(_local(value))
        return pytree.tree_unflatten(local, structure)


class FlattenedOnce(LruCached):
    """Dispatch after pytorch/pytorch#107305, as in torch 2.1.0.

    It flattens the arguments once and unflattens them four times. Its only `lru_cache` hashes all
    arguments, numbers included. A flag in the decision controls redistribution.
    """

    def _dispatch(self, op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        flat, structure = pytree.tree_flatten(args)
        flat_kwargs, kwargs_structure = pytree.tree_flatten(kwargs)
        mesh = try_find_mesh_from_args(op, flat)
        schema, local = [_spec(value, op, mesh) for value in flat], tuple(map(_local, flat))
        kwargs_schema = [_spec(value, op, mesh) for value in flat_kwargs]
        whole_schema = _schema(
            op,
            pytree.tree_unflatten(schema, structure),
            pytree.tree_unflatten(kwargs_schema, kwargs_structure),
        )
        local_kwargs = pytree.tree_unflatten([*map(_local, flat_kwargs)], kwargs_structure)
        info = OpInfo(mesh, whole_schema, schema, local, local_kwargs, structure)
        return torch_path.carry_out(op, args, kwargs, info, self._decide(_FullKey(whole_schema)))

    @staticmethod
    def _decided(key: "_FullKey") -> OutputSharding:
        return PROPAGATOR.propagate_op_sharding_non_cached(key.schema)


class _FullKey:
    """The key of `FlattenedOnce`: hashed and compared by all arguments, with lists as tuples."""

    def __init__(self, schema: OpSchema) -> None:
        self.schema = schema
        self._args = _hashable(schema.args_schema)
        self._kwargs = frozenset(
            (name, _hashable(value)) for name, value in schema.kwargs_schema.items()
        )

    def __hash__(self) -> int:
        return hash((self.schema.op._schema, self._args, self._kwargs))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _FullKey)
            and self.schema.op == other.schema.op
            and self._args == other._args
            and self._kwargs == other._kwargs
        )


class Unflattened(LruCached):
    """Dispatch after pytorch/pytorch#110132, as in torch 2.9: pytree only for ops that need it.

    The key is torch's own, which excludes arguments that cannot change the decision (#109306).
    """

    def _dispatch(self, op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        info = DISPATCHER.unwrap_to_op_info(op, args, kwargs)
        sharding = self._decide(info.schema)
        return torch_path.carry_out(op, args, kwargs, info, sharding)
