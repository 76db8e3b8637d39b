"""Find the shape, stride and type of an op's result without a fake tensor.

After a miss torch runs the op on fake tensors to learn its result, which takes a third of a
millisecond or, for new shapes, up to several. A product of matrices always has the same shape, and
a pointwise op keeps the layout of its inputs. Views, and ops that are less plain, get the same
answer from a tensor on the meta device.
"""

from collections.abc import Sequence
from typing import Any

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
    """Whether torch decides an op as a pointwise one."""
    strategy = PROPAGATOR.op_single_dim_strategy_funcs.get(op)
    module = getattr(strategy and strategy.func, "__module__", "")
    return bool(module == _pointwise_ops.__name__)


def is_asked_directly(op: OpOverload) -> bool:
    """Whether `plain_meta` knows results of an op."""
    of_op = traits(op)
    return of_op.makes_one_tensor and (op in _VIEWS or op in PRODUCTS or is_pointwise(op))


def plain_meta(schema: OpSchema) -> TensorMeta | None:
    """Return the meta of an op's result in plain cases; None where torch needs fake tensors."""
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
    """Return the global shape, stride and type of an op's result; None where it fails."""
    op, args = _without_summand(schema)
    try:
        if op in _BARE:
            made = _of_product(*args)
        else:
            made = None if op in _VIEWS else _of_pointwise(op, args)
        return _of_meta_device(op, args) if made is None else made
    except Exception:  # torch raises the error that fits
        return None


def _of_meta_device(op: OpOverload, args: Sequence[Any]) -> TensorMeta:
    made = op(
        *(on_meta_device(*arg.tensor_meta) if isinstance(arg, DTensorSpec) else arg for arg in args)
    )
    return TensorMeta(made.shape, made.stride(), made.dtype)


def _of_product(left: DTensorSpec, right: DTensorSpec) -> TensorMeta | None:
    """Return the meta of a product of matrices or batches of them; None where they do not fit."""
    shape, _, dtype = left.tensor_meta
    other, _, other_dtype = right.tensor_meta
    *batch, rows, inner = shape
    if list(other[:-1]) != [*batch, inner] or dtype != other_dtype or min(*shape, *other) < 2:
        return None
    made = torch.Size((*batch, rows, other[-1]))
    return TensorMeta(made, stride_of(made, ()), dtype)


def _of_pointwise(op: OpOverload, args: Sequence[Any]) -> TensorMeta | None:
    """Return the meta of an ATen op on floating-point inputs that are alike; None for others.

    The result has their layout. Its type depends on the op, and empty tensors show it.
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


def _are_alike(schema: OpSchema) -> bool:
    """Whether all inputs have one shape, and no dimension leaves its stride open."""
    shapes = {spec.shape for spec in schema.args_spec}
    return len(shapes) == 1 and not {0, 1}.intersection(*shapes)


def _without_summand(schema: OpSchema) -> tuple[OpOverload, tuple[Any, ...]]:
    """Return the bare product for a product with a summand of a fitting shape.

    Both make the same, and torch computes the bare one in C++, in a twentieth of the time.
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
    """Whether a tensor of a shape can be broadcast to another shape."""
    pairs = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(size in (1, other) for size, other in pairs)


def order_of(shape: Sequence[int], stride: Sequence[int]) -> tuple[int, ...] | None:
    """Return the dimensions from the innermost to the outermost; None where there are gaps.

    The empty order stands for the usual one, in which the last dimension is the innermost.
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
    """Return the stride of a tensor without gaps, from its order of dimensions in memory."""
    if not order and len(shape) == 2:
        return shape[1], 1
    stride = [1] * len(shape)
    step = 1
    for dim in order or range(len(shape) - 1, -1, -1):
        stride[dim] = step
        step *= shape[dim]
    return tuple(stride)
