"""Find the shape, stride and type of an op's result without a fake tensor.

After a miss torch runs the op on fake tensors to find these attributes. The run takes a third of a
millisecond, or up to several milliseconds for new shapes. In this module, the shape of a matrix
product follows from its inputs' shapes, a pointwise op keeps the layout of its inputs, and views
run on the meta device, with the same result.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema
from torch.distributed.tensor._ops import _pointwise_ops

from planners.dtensor.dispatch.torch_path import PROPAGATOR, traits

Shape = Sequence[int]

_aten = torch.ops.aten
PRODUCTS = {
    _aten.mm.default: 2,
    _aten.addmm.default: 2,
    _aten.bmm.default: 3,
    _aten.baddbmm.default: 3,
}
"""Matrix products, bare or with a summand, and the number of dimensions of their factors."""

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
    op, args = schema.op, schema.args_schema
    if not traits(op).makes_one_tensor or schema.kwargs_schema:
        return None
    try:
        if op in _VIEWS:
            return _of_view(op, args) if _has_one_stride(schema) else None
        if op in PRODUCTS:
            return _of_product(PRODUCTS[op], [spec.tensor_meta for spec in args])
        return _of_pointwise(op, args) if is_pointwise(op) else None
    except Exception:  # torch then raises its own error
        return None


def _of_view(op: OpOverload, args: Sequence[Any]) -> TensorMeta:
    made = op(*[_on_meta_device(arg) if isinstance(arg, DTensorSpec) else arg for arg in args])
    return TensorMeta(made.shape, made.stride(), made.dtype)


def _on_meta_device(spec: DTensorSpec) -> torch.Tensor:
    shape, stride, dtype = spec.tensor_meta
    return torch.empty_strided(shape, stride, dtype=dtype, device="meta")


def _has_one_stride(schema: OpSchema) -> bool:
    """Whether no stride of an input is arbitrary, as that of a dimension of size 1 may be.

    A fake tensor keeps such a stride in a view of the same shape, but the meta device does not.
    """
    return all(
        not {0, 1}.intersection(spec.shape) or order_of(spec.shape, spec.stride) == ()
        for spec in schema.args_spec
    )


def _of_product(ndim: int, inputs: Sequence[TensorMeta]) -> TensorMeta | None:
    """Return the meta of a product; None for other types or sizes than usual."""
    shapes = [meta.shape for meta in inputs]
    shape, dtype = product_shape(shapes), inputs[0].dtype
    if (
        shape is None
        or len(shape) != ndim
        or min(*shapes[-2], *shapes[-1]) < 2
        or any(meta.dtype != dtype for meta in inputs)
    ):
        return None
    return TensorMeta(torch.Size(shape), stride_of(shape, ()), dtype)


def product_shape(shapes: Sequence[Shape]) -> Shape | None:
    """Return the shape of a product of matrices or batches, with or without a summand.

    The shapes are of the summand and the two factors. Return None if they do not fit.
    """
    *summand, left, right = shapes
    *batch, rows, inner = left
    *other_batch, other_inner, columns = right
    if inner != other_inner or batch != other_batch:
        return None
    shape = (*batch, rows, columns)
    return shape if not summand or _broadcasts_to(summand[0], shape) else None


def _broadcasts_to(shape: Shape, whole: Shape) -> bool:
    pairs = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(size in (1, other) for size, other in pairs)


def _of_pointwise(op: OpOverload, args: Sequence[Any]) -> TensorMeta | None:
    """Return the meta of a pointwise ATen op on floating-point inputs of one layout, else None.

    The result has the same layout. Its type comes from a run of the op on empty tensors.
    """
    inputs = [arg.tensor_meta for arg in args if isinstance(arg, DTensorSpec)]
    shape, stride, dtype = inputs[0]
    if (
        op.namespace != "aten"
        or not (shape and dtype.is_floating_point)
        or {0, 1}.intersection(shape)  # their strides are arbitrary
        or any(other != inputs[0] for other in inputs)
        or order_of(shape, stride) is None
        or torch.Tag.nondeterministic_seeded in op.tags
    ):
        return None
    empty = torch.empty((0,) * len(shape), dtype=dtype)
    made = op(*[empty if isinstance(arg, DTensorSpec) else arg for arg in args])
    return TensorMeta(shape, stride, made.dtype)


def order_of(shape: Shape, stride: Shape) -> tuple[int, ...] | None:
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


def stride_of(shape: Shape, order: Shape) -> tuple[int, ...]:
    """Return the stride of a tensor without gaps, for a memory order returned by `order_of`."""
    if not order and len(shape) == 2:
        return shape[1], 1
    stride = [1] * len(shape)
    step = 1
    for dim in order or range(len(shape) - 1, -1, -1):
        stride[dim] = step
        step *= shape[dim]
    return tuple(stride)
