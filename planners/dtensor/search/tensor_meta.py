"""Tell shape, stride and type of an op's result without a fake tensor.

After a miss torch runs the op on fake tensors to learn what it makes, a third of a millisecond or,
for shapes it has not seen, up to several. A product of matrices has the same shape always, and a
pointwise op makes what lies as its inputs do. Where that is not so plain, and for views, a tensor
on the meta device gives the same answer.
"""

from collections.abc import Container, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch
from torch._ops import OpOverload
from torch.distributed._functional_collectives import _are_we_tracing
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema
from torch.distributed.tensor._ops import _pointwise_ops

from planners.dtensor.dispatch.torch_path import PROPAGATOR, modes_active, on_meta_device, traits

_aten = torch.ops.aten
_BARE_PRODUCTS = {_aten.addmm.default: _aten.mm.default, _aten.baddbmm.default: _aten.bmm.default}
PRODUCTS = frozenset((*_BARE_PRODUCTS, *_BARE_PRODUCTS.values()))
"""Matrix products, by themselves or added to something."""

_BARE = frozenset(_BARE_PRODUCTS.values())

_VIEWS = frozenset(
    (
        _aten.alias.default,
        _aten.detach.default,
        _aten.expand.default,
        _aten.permute.default,
        _aten.select.int,
        _aten.slice.Tensor,
        _aten.squeeze.dim,
        _aten.t.default,
        _aten.transpose.int,
        _aten.unsqueeze.default,
        _aten.view.default,
    )
)


def is_pointwise(op: OpOverload) -> bool:
    """Whether torch decides an op as a pointwise one."""
    strategy = PROPAGATOR.op_single_dim_strategy_funcs.get(op)
    module = getattr(strategy and strategy.func, "__module__", "")
    return bool(module == _pointwise_ops.__name__)


def is_asked_directly(op: OpOverload) -> bool:
    """Whether it is asked here what an op makes."""
    of_op = traits(op)
    return of_op.makes_one_tensor and (op in _VIEWS or op in PRODUCTS or is_pointwise(op))


def asked_directly(but_for: Container[OpOverload] = ()) -> AbstractContextManager[Any]:
    """Let torch ask here in plain cases, but not for `but_for`, which may change."""
    ask_fake_tensors = PROPAGATOR._propagate_tensor_meta_non_cached

    def ask(schema: OpSchema) -> Any:
        meta = None if schema.op in but_for else plain_meta(schema)
        return ask_fake_tensors(schema) if meta is None else meta

    return mock.patch.object(PROPAGATOR, "_propagate_tensor_meta_non_cached", ask, create=True)


def plain_meta(schema: OpSchema) -> TensorMeta | None:
    """Return what an op makes in plain cases; None where fake tensors have to tell."""
    op = schema.op
    if (
        not is_asked_directly(op)
        or schema.kwargs_schema
        or modes_active()
        or _are_we_tracing()
        or (op not in PRODUCTS and op not in _VIEWS and not _are_alike(schema))
    ):
        return None
    return meta_of(schema)


def meta_of(schema: OpSchema) -> TensorMeta | None:
    """Return the global shape, stride and type of what an op makes; None where it fails."""
    op, args = _without_summand(schema)
    try:
        if op in _BARE:
            made = _of_product(*args)
        else:
            made = None if op in _VIEWS else _of_pointwise(op, args)
        return _of_meta_device(op, args) if made is None else made
    except Exception:  # torch says what is wrong when it is asked the other way
        return None


def _of_meta_device(op: OpOverload, args: Sequence[Any]) -> TensorMeta:
    made = op(*(on_meta_device(*a.tensor_meta) if isinstance(a, DTensorSpec) else a for a in args))
    return TensorMeta(made.shape, made.stride(), made.dtype)


def _of_product(left: DTensorSpec, right: DTensorSpec) -> TensorMeta | None:
    """Return what a product of matrices makes, or of as many; None where they do not fit."""
    shape, _, dtype = left.tensor_meta
    other, _, other_dtype = right.tensor_meta
    *batch, rows, inner = shape
    if list(other[:-1]) != [*batch, inner] or dtype != other_dtype or min(*shape, *other) < 2:
        return None
    made = torch.Size((*batch, rows, other[-1]))
    return TensorMeta(made, stride_of(made, ()), dtype)


def _of_pointwise(op: OpOverload, args: Sequence[Any]) -> TensorMeta | None:
    """Return what an op of ATen makes of floating-point inputs that are alike; None of others.

    That lies in memory as they do. Its type is the op's own, and shows on tensors without elements.
    """
    inputs = [each.tensor_meta for each in args if isinstance(each, DTensorSpec)]
    shape, stride, dtype = inputs[0]
    if (
        op.namespace != "aten"
        or not (shape and dtype.is_floating_point)
        or any(each != inputs[0] for each in inputs)
        or order_of(shape, stride) is None
        or torch.Tag.nondeterministic_seeded in op.tags
    ):
        return None
    empty = torch.empty((0,) * len(shape), dtype=dtype)
    try:
        made = op(*[empty if isinstance(each, DTensorSpec) else each for each in args])
    except RuntimeError:  # a CPU has no kernel for it
        return None
    return TensorMeta(shape, stride, made.dtype)


def _are_alike(schema: OpSchema) -> bool:
    """Whether all inputs have one shape, without dimensions that leave their stride open."""
    shapes = {each.shape for each in schema.args_spec}
    return len(shapes) == 1 and not {0, 1}.intersection(*shapes)


def _without_summand(schema: OpSchema) -> tuple[OpOverload, tuple[Any, ...]]:
    """Return the bare product for a product that is added to something of a fitting shape.

    Both make the same, and torch works the bare one out in C++, a twentieth of the time.
    """
    bare = _BARE_PRODUCTS.get(schema.op)
    if bare is None:
        return schema.op, schema.args_schema
    summand, left, right = schema.args_schema
    shape = (*left.shape[:-1], right.shape[-1])
    fits = len(summand.shape) <= len(shape) and all(
        size in (1, whole)
        for size, whole in zip(reversed(summand.shape), reversed(shape), strict=False)
    )
    if fits and len({each.tensor_meta.dtype for each in (summand, left, right)}) == 1:
        return bare, (left, right)
    return schema.op, schema.args_schema


def order_of(shape: Sequence[int], stride: Sequence[int]) -> tuple[int, ...] | None:
    """Return the dimensions from the last to the first in memory; None where there are gaps.

    The empty order stands for the usual one, in which the last dimension comes last.
    """
    if len(shape) == 2 and stride[1] == 1 and stride[0] == shape[1]:
        return ()  # as of most matrices, without a loop
    expected = 1
    for dim in range(len(shape) - 1, -1, -1):
        if stride[dim] != expected:
            break
        expected *= shape[dim]
    else:
        return ()
    order = tuple(sorted(range(len(stride)), key=stride.__getitem__))
    expected = 1
    for dim in order:
        if stride[dim] != expected:
            return None
        expected *= shape[dim]
    return order


def stride_of(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Return the stride of a tensor without gaps, from its order of dimensions in memory."""
    if not order and len(shape) == 2:
        return shape[1], 1
    stride = [1] * len(shape)
    step = 1
    for dim in order or range(len(shape) - 1, -1, -1):
        stride[dim] = step
        step *= shape[dim]
    return tuple(stride)
