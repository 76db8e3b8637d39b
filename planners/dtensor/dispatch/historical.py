"""Dispatch in Python as in earlier releases of torch, one class for each published change.

Only the dispatch is historical. Specs, strategies and decisions after a miss come from the
installed torch."""

from collections.abc import Hashable
from contextlib import AbstractContextManager
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


class Unflattened(Dispatch):
    """Dispatch after pytorch/pytorch#110132, as in torch 2.9: pytree only for ops that need it.

    The key is torch's own, which excludes arguments that cannot change the decision (#109306). The
    cache is unbounded. Torch dispatches random ops, and all ops under dispatch modes.
    """

    def __init__(self) -> None:
        self._decisions: dict[Hashable, OutputSharding] = {}
        self._hits = self._misses = 0

    def installed(self) -> AbstractContextManager[Any]:
        """Dispatch all other ops with a strategy inside the context."""
        return handling(torch_path.ops_to_take_over(), lambda op: self._dispatch)

    def clear(self) -> None:
        """Delete all decisions, and reset the counts."""
        self._decisions.clear()
        self._hits = self._misses = 0

    def cache_info(self) -> CacheInfo:
        """Return the counts of the cache."""
        return CacheInfo(self._hits, self._misses, len(self._decisions), 0)

    def _dispatch(self, op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        info, key = self._unwrapped(op, args, kwargs)
        sharding = self._decisions.get(key)
        if sharding is None:
            sharding = self._decided(info.schema, key)
        else:
            self._hits += 1
        return torch_path.carry_out(op, args, kwargs, info, sharding)

    def _unwrapped(self, op: OpOverload, args: Args, kwargs: Kwargs) -> tuple[OpInfo, Hashable]:
        """Return a call's specs and local arguments, and its key in the cache."""
        info = DISPATCHER.unwrap_to_op_info(op, args, kwargs)
        return info, info.schema

    def _decided(self, schema: OpSchema, key: Hashable) -> OutputSharding:
        """Store torch's decision after a miss, and return it."""
        self._misses += 1
        sharding = PROPAGATOR.propagate_op_sharding_non_cached(schema)
        self._decisions[key] = sharding
        return sharding


class FlattenedOnce(Unflattened):
    """Dispatch after pytorch/pytorch#107305, as in torch 2.1.0.

    It flattens the arguments once and unflattens them four times. The key includes all arguments,
    numbers too, with lists as tuples.
    """

    def _unwrapped(self, op: OpOverload, args: Args, kwargs: Kwargs) -> tuple[OpInfo, Hashable]:
        flat, structure = pytree.tree_flatten(args)
        flat_kwargs, kwargs_structure = pytree.tree_flatten(kwargs)
        mesh = try_find_mesh_from_args(op, flat)
        specs, local = [_spec(value, op, mesh) for value in flat], tuple(map(_local, flat))
        kwargs_specs = [_spec(value, op, mesh) for value in flat_kwargs]
        schema = OpSchema(
            op,
            pytree.tree_unflatten(specs, structure),
            pytree.tree_unflatten(kwargs_specs, kwargs_structure),
            schema_info=torch_path.schema_info(op),
        )
        local_kwargs = pytree.tree_unflatten([*map(_local, flat_kwargs)], kwargs_structure)
        named = frozenset((name, _hashable(value)) for name, value in schema.kwargs_schema.items())
        key = op._schema, _hashable(schema.args_schema), named
        return OpInfo(mesh, schema, specs, local, local_kwargs, structure), key


class FirstCache(Unflattened):
    """Dispatch before pytorch/pytorch#107305, as in torch 2.0.1.

    It makes eleven passes over the arguments and two look-ups in its dictionary. On a hit, every
    tensor passes through a redistribution that moves nothing: torch skipped it only if the
    suggested schema and the op's schema were the same object. Views put the local shape into the
    cached key, so views never hit.
    """

    def _dispatch(self, op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        # 1. Find the mesh, and put specs in the place of tensors.
        leaves, _ = pytree.tree_flatten(args)
        mesh = try_find_mesh_from_args(op, leaves)
        if any(isinstance(leaf, DTensor) and leaf.device_mesh != mesh for leaf in leaves):
            return by_torch(op, args, kwargs)
        args_schema = pytree.tree_map(lambda value: _spec(value, op, mesh), args)
        kwargs_schema = pytree.tree_map(lambda value: _spec(value, op, mesh), kwargs)
        # 2. Look up the decision.
        key = _FirstKey(op, args_schema, kwargs_schema)
        is_hit = key in self._decisions
        if is_hit:
            self._hits += 1
            sharding = self._decisions[key]
        else:
            info = torch_path.schema_info(op)
            schema = OpSchema(op, args_schema, kwargs_schema, schema_info=info)
            sharding = self._decided(schema, key)
            if PROPAGATOR.op_to_shape_and_stride_idx.get(op) == 1:
                shape = sharding.output_spec.shape  # or the shape that this rank passes to the view
                if sharding.use_val_from_redistribute_schema:
                    shape = sharding.redistribute_schema.args_schema[1]
                key.args = (args_schema[0], tuple(shape), *args_schema[2:])
        # 3. Compute on the local tensors.
        flat_schema, _ = pytree.tree_flatten(args_schema)
        flat_kwargs_schema, _ = pytree.tree_flatten(kwargs_schema)
        local_args = _localised(args, flat_schema, moves=is_hit)
        local_kwargs = _localised(kwargs, flat_kwargs_schema, moves=is_hit)
        if sharding.needs_redistribute:
            # Only torch knows how to rewrite the arguments of each kind of op.
            info = DISPATCHER.unwrap_to_op_info(op, args, kwargs)
            return torch_path.carry_out(op, args, kwargs, info, sharding)
        results = op(*local_args, **local_kwargs)
        return torch_path.wrap(op, args, kwargs, mesh, sharding, results)


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


def _localised(values: Any, flat_schema: list[Any], moves: bool) -> Any:
    flat, structure = pytree.tree_flatten(values)
    local = []
    for value, spec in zip(flat, flat_schema, strict=True):
        if moves and isinstance(value, DTensor):
            moved = redistribute_local_tensor(value._local_tensor, value._spec, spec)
            value = DTensor(moved, spec, requires_grad=moved.requires_grad)
        local.append(_local(value))
    return pytree.tree_unflatten(local, structure)


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
