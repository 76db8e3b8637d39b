"""Find the shape, stride and type of an op's result without a fake tensor.

After a miss torch runs the op on fake tensors to find these attributes. The run takes a third of a
millisecond, or up to several milliseconds for new shapes. In this module, the shape of a matrix
product follows from its inputs' shapes, and a pointwise op keeps the layout of its inputs. Views
and other ops run on the meta device, with the same result.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema
from torch.distributed.tensor._ops import _pointwise_ops

from planners.dtensor.dispatch.torch_path import PROPAGATOR, traits

_aten = torch.ops.aten
_BARE_PRODUCTS = {_aten.addmm.default: _aten.mm.default, _aten.baddbmm.default: _aten.bmm.default}
PRODUCTS = frozenset((*_BARE_PRODUCTS, *_BARE_PRODUCTS.values()))
"""Matrix products, bare or with a summand."""

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
    """Whether torch's strategy for an op is its strategy for pointwise ops."""
    strategy = PROPAGATOR.op_single_dim_strategy_funcs.get(op)
    module = getattr(strategy and strategy.func, "__module__", "")
    return bool(module == _pointwise_ops.__name__)


def plain_meta(schema: OpSchema) -> TensorMeta | None:
    """Return the shape, stride and type of the result of a view, a product or a pointwise op.

    Return None if torch needs fake tensors, or raises an error.
    """
    op = schema.op
    if not traits(op).makes_one_tensor or schema.kwargs_schema:
        return None
    try:
        if op in _VIEWS:
            return _of_meta_device(op, schema.args_schema) if _has_one_stride(schema) else None
        if op in PRODUCTS:
            op, args = _without_summand(schema)
            made = _of_product(2 if op is _aten.mm.default else 3, *args) if op in _BARE else None
        elif is_pointwise(op) and _are_alike(schema):
            args = schema.args_schema
            made = _of_pointwise(op, args)
        else:
            return None
        return _of_meta_device(op, args) if made is None else made
    except Exception:  # torch then raises its own error
        return None


def _of_meta_device(op: OpOverload, args: Sequence[Any]) -> TensorMeta:
    made = op(*[_on_meta_device(arg) if isinstance(arg, DTensorSpec) else arg for arg in args])
    return TensorMeta(made.shape, made.stride(), made.dtype)


def _on_meta_device(spec: DTensorSpec) -> torch.Tensor:
    shape, stride, dtype = spec.tensor_meta
    return torch.empty_strided(shape, stride, dtype=dtype, device="meta")


def _of_product(ndim: int, left: DTensorSpec, right: DTensorSpec) -> TensorMeta | None:
    """Return the meta of a product of two matrices or batches; None for unusual sizes or types.

    The op takes tensors of `ndim` dimensions.
    """
    shape, _, dtype = left.tensor_meta
    other, _, other_dtype = right.tensor_meta
    *batch, rows, inner = shape
    if (
        len(shape) != ndim
        or list(other[:-1]) != [*batch, inner]
        or dtype != other_dtype
        or min(*shape, *other) < 2
    ):
        return None
    made = torch.Size((*batch, rows, other[-1]))
    return TensorMeta(made, stride_of(made, ()), dtype)


def _of_pointwise(op: OpOverload, args: Sequence[Any]) -> TensorMeta | None:
    """Return the meta of a pointwise ATen op on floating-point inputs of one layout, else None.

    The result has the same layout. Its type comes from a run of the op on empty tensors.
    """
    inputs = [arg.tensor_meta for arg in args if isinstance(arg, DTensorSpec)]
    shape, stride, dtype = inputs[0]
    if (
        op.namespace != "aten"
        or not (shape and dtype.is_floating_point)
        or any(other != inputs[0] for other in inputs)
        or order_of(shape, stride) is None
        or torch.Tag.nondeterministic_seeded in op.tags
    ):
        return None
    empty = torch.empty((0,) * len(shape), dtype=dtype)
    try:
        made = op(*[empty if isinstance(arg, DTensorSpec) else arg for arg in args])
    except RuntimeError:  # a CPU has no kernel for it
        return None
    return TensorMeta(shape, stride, made.dtype)


def _has_one_stride(schema: OpSchema) -> bool:
    """Whether no stride of an input is arbitrary, as that of a dimension of size 1 may be.

    A fake tensor keeps such a stride in a view of the same shape, but the meta device does not.
    """
    return all(
        not {0, 1}.intersection(spec.shape) or order_of(spec.shape, spec.stride) == ()
        for spec in schema.args_spec
    )


def _are_alike(schema: OpSchema) -> bool:
    """Whether all inputs have the same shape, without sizes 0 and 1 (with arbitrary strides)."""
    shapes = {spec.shape for spec in schema.args_spec}
    return len(shapes) == 1 and not {0, 1}.intersection(*shapes)


def _without_summand(schema: OpSchema) -> tuple[OpOverload, tuple[Any, ...]]:
    """Return an op and its arguments, with `addmm` and `baddbmm` replaced by `mm` and `bmm`.

    The results have the same meta, but torch computes `mm` and `bmm` in C++, in a twentieth of the
    time. If the summand does not fit by shape and type, return the op unchanged.
    """
    bare = _BARE_PRODUCTS.get(schema.op)
    if bare is None:
        return schema.op, schema.args_schema
    summand, left, right = schema.args_schema
    fits = broadcasts_to(summand.shape, (*left.shape[:-1], right.shape[-1]))
    if fits and len({spec.tensor_meta.dtype for spec in (summand, left, right)}) == 1:
        return bare, (left, right)
    return schema.op, schema.args_schema


def broadcasts_to(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether a tensor of shape `shape` can be broadcast to the shape `whole`."""
    pairs = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(size in (1, other) for size, other in pairs)


def order_of(shape: Sequence[int], stride: Sequence[int]) -> tuple[int, ...] | None:
    """Return the dimensions in memory order, the innermost first; None if memory has gaps.

    Return () for the usual order, in which the last dimension is the innermost.
    """
    if len(shape) == 2 and stride[1] == 1 and stride[0] == shape[1]:
        return ()  # most matrices, without a loop
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
    """Return the stride of a tensor without gaps, for a memory order returned by `order_of`."""
    if not order and len(shape) == 2:
        return shape[1], 1
    stride = [1] * len(shape)
    step = 1
    for dim in order or range(len(shape) - 1, -1, -1):
        stride[dim] = step
        step *= shape[dim]
    return tuple(stride)
