"""The steps of torch's own dispatch of an op, as its C++ code calls them in Python.

A dispatch that replaces one step calls the other steps here. In-place ops, ranks outside the mesh,
debug modes and random ops are left to torch.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, _dispatch, _redistribute
from torch.distributed.tensor._dispatch import OpDispatcher
from torch.distributed.tensor._op_schema import OpInfo, OutputSharding
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.utils._python_dispatch import return_and_correct_aliasing

DISPATCHER: OpDispatcher = DTensor._op_dispatcher
PROPAGATOR = DISPATCHER.sharding_propagator

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Handler = Callable[[OpOverload, Args, Kwargs], Any]

modes_active = torch._C._len_torch_dispatch_stack
"""Return the number of active dispatch modes (debugging, fake tensors, tracing)."""

functions_overridden = torch._C._len_torch_function_stack
"""Return the number of active modes that override torch's functions."""

_transforms_active = torch._C._are_functorch_transforms_active

has_torch_function = torch._C._has_torch_function_variadic
"""Whether a mode, or the class of one of these objects, overrides torch's Python functions.

Torch's C++ dispatch runs below such a class of a local tensor. Ops called from Python do not.
"""

alias_storage = torch._functionalize_unsafe_set
"""Let the first tensor share the second one's storage, as a view's result must."""


def is_watched() -> bool:
    """Return whether a compiler, an export, a mode, a transform or forward gradients are active.

    They may see what this thread runs, so torch's own code must run.
    """
    return bool(
        torch.compiler.is_compiling()  # first: Dynamo then traces nothing else here
        or modes_active()
        or functions_overridden()
        or _transforms_active()
        or forward_ad._current_level >= 0
    )


@dataclass(frozen=True, slots=True)
class Traits:
    """A summary of an op's schema."""

    is_in_place: bool
    is_out_variant: bool
    is_view: bool
    takes_lists: bool  # of tensors
    makes_one_tensor: bool  # a new one, from arguments without lists of tensors
    makes_tensors: bool  # one or several, or it changes values of its inputs, but no `out`


@lru_cache(None)
def traits(op: OpOverload) -> Traits:
    """Return the traits of an op; the cache needs no bound, as torch has a fixed set of ops."""
    schema = op._schema
    types = [str(argument.type) for argument in schema.arguments]
    returned = [str(result.type) for result in schema.returns]
    is_in_place = schema.name.endswith("_")
    is_out_variant = any(argument.is_out for argument in schema.arguments)
    takes_lists = any("List" in kind and "Tensor" in kind for kind in types)
    makes_new = returned == ["Tensor"] and not (is_in_place or is_out_variant)
    changes_sizes = torch.Tag.inplace_view in op.tags
    return Traits(
        is_in_place=is_in_place,
        is_out_variant=is_out_variant,
        is_view=schema._is_view_op(),
        takes_lists=takes_lists,
        makes_one_tensor=makes_new and not takes_lists,
        makes_tensors=(is_in_place or any("Tensor" in kind for kind in returned))
        and not (is_out_variant or changes_sizes),
    )


def ops_with_strategies() -> set[OpOverload]:
    """Return the ops for which torch can propagate shardings."""
    return {
        *PROPAGATOR.op_strategy_funcs,
        *PROPAGATOR.op_to_rules,
        *PROPAGATOR.op_single_dim_strategy_funcs,
        torch.ops.aten.detach.default,
        torch.ops.aten.alias.default,
    }


def ops_to_take_over() -> set[OpOverload]:
    """Return the ops that a handler may take over: all with a strategy, except random ops."""
    return ops_with_strategies().difference(DISPATCHER._random_ops)


def schema_info(op: OpOverload) -> Any:
    """Return torch's record of the arguments that matter to an op's decision, or None."""
    found = PROPAGATOR.op_to_schema_info.get(op)
    return found or PROPAGATOR.op_to_schema_info_for_single_dim_strategy.get(op)


def strategy_of(op: OpOverload) -> object:
    """Return the strategy that is registered for an op, or None."""
    found = PROPAGATOR.op_single_dim_strategy_funcs.get(op)
    return PROPAGATOR.op_strategy_funcs.get(op) if found is None else found


def carry_out(
    op: OpOverload, args: Args, kwargs: Kwargs, info: OpInfo, sharding: OutputSharding
) -> Any:
    """Run an op by a given decision: redistribute its inputs, compute, wrap the results."""
    info.output_sharding = sharding
    results = DISPATCHER._dispatch_get_local_results_slow_path(op, args, info)
    return wrap(op, args, kwargs, info.compute_mesh, sharding, results)


def wrap(
    op: OpOverload,
    args: Args,
    kwargs: Kwargs,
    mesh: DeviceMesh,
    sharding: OutputSharding,
    results: Any,
) -> Any:
    """Return the local results of an op as the DTensors that torch would return."""
    of_op = traits(op)
    takes_part = mesh._is_current_rank_part_of_mesh()
    if of_op.is_in_place or of_op.is_out_variant or op is torch.ops.aten.equal.default:
        flags = takes_part, of_op.is_in_place, of_op.is_out_variant
        return DISPATCHER._dispatch_fast_path_python_tail(
            op, args, kwargs, mesh, sharding, results, *flags
        )
    wrapped = DISPATCHER.wrap(results, sharding.output_spec)
    if not (takes_part and of_op.is_view):
        return wrapped
    if isinstance(wrapped, DTensor):
        alias_storage(wrapped, args[0])
        return wrapped
    return return_and_correct_aliasing(op, args, kwargs, wrapped)


def is_dispatching() -> bool:
    """Whether torch is dispatching an op further up this thread's call stack.

    Ops that our handlers have taken over do not count.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_filename == _dispatch.__file__ or code.co_name == "__torch_dispatch__":
            return True
        frame = frame.f_back
    return False


def clear_torch_caches() -> None:
    """Clear torch's caches of sharding, redistribution and fake tensors.

    Never call it while an op is dispatched: C++ then holds a pointer into its cache.
    """
    _clear_sharding_prop_cache()
    type(PROPAGATOR)._propagate_tensor_meta_cached.cache_clear()
    _redistribute._gen_transform_infos.cache_clear()
    _redistribute.clear_redistribute_planner_cache()
    FakeTensorMode.cache_clear()
