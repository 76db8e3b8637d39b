"""Classes of calls whose sizes cannot change the decision for an op.

An op that needs no redistribution at one size needs none at any other size with enough elements for
every rank. Placements alone decide: torch takes the last strategy with the placements of the
inputs. Torch's other tests of sizes (is there a row for every rank, is a dimension of size 1
broadcast) have the same results. So the cache stores the placements of a result for all sizes, and
computes the result's size from the inputs' sizes. The cache of recipes by exact size handles all
other cases: redistributions, which torch chooses by cost; dimensions with fewer than two elements
for each rank; strides with gaps; keyword arguments; and all ops except matrix products, pointwise
ops and transpositions.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OutputSharding

from planners.dtensor.cache.calls import Key, tensors_of
from planners.dtensor.cache.recipes import result_of
from planners.dtensor.dispatch.specs import copy_of, layout_of
from planners.dtensor.dispatch.torch_path import Args, has_torch_function, strategy_of, traits
from planners.dtensor.search.tensor_meta import (
    PRODUCTS,
    Shape,
    is_pointwise,
    order_of,
    product_shape,
    stride_of,
)

_aten = torch.ops.aten


def _swapped(shape: Shape, first: int, second: int) -> Shape:
    made = list(shape)
    made[first], made[second] = made[second], made[first]
    return made


_TRANSPOSITIONS: dict[OpOverload, Callable[..., Shape]] = {
    _aten.t.default: lambda shape: shape[::-1],
    _aten.transpose.int: _swapped,
    _aten.permute.default: lambda shape, dims: [shape[dim] for dim in dims],
}
"""Transpositions, with functions of the input's shape and the dims for the result's shape."""


def _shape_made(op: OpOverload, args: Args) -> Shape | None:
    """Return the global shape of an op's result; None where the arguments do not fit."""
    shapes: list[Shape] = [tensor._spec.shape for tensor in tensors_of(args)]
    if op in PRODUCTS:
        return product_shape(shapes)
    if op in _TRANSPOSITIONS:
        return _TRANSPOSITIONS[op](shapes[0], *args[1:])
    if shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    try:
        whole: Shape = torch.broadcast_shapes(*shapes)
    except RuntimeError:
        return None
    return whole


class KnownClass(NamedTuple):
    """The placements and memory order of an op's result, for all inputs of one shape class.

    They are valid as long as torch's strategy for the op is `strategy`.
    """

    output: DTensorSpec
    order: tuple[int, ...]
    strategy: object

    def result(self, op: OpOverload, args: Args) -> DTensor | None:
        """Run the op on the local tensors and wrap the result; None where the sizes do not fit."""
        shape = _shape_made(op, args)
        if shape is None:
            return None
        try:
            made = op._op(*[getattr(value, "_local_tensor", value) for value in args])
        except RuntimeError:  # torch has the better error message, about the whole tensors
            return None
        dtype = self.output.tensor_meta.dtype  # of bools the local result may have another type
        meta = TensorMeta(torch.Size(shape), stride_of(shape, self.order), dtype)
        # The known mesh may have other ranks or dead groups.
        mesh = next(tensors_of(args))._spec.mesh
        spec = copy_of(self.output, mesh=mesh, tensor_meta=meta, _hash=None)
        result: DTensor = result_of(spec, op in _TRANSPOSITIONS)(made, args)
        return result


def class_to_keep(
    op: OpOverload, args: Args, sharding: OutputSharding | None, made: Any
) -> KnownClass | None:
    """Return the class of a call by torch's decision; None if sizes matter for its result."""
    if (
        not (op in PRODUCTS or op in _TRANSPOSITIONS or is_pointwise(op))
        or not traits(op).makes_one_tensor
        or sharding is None
        or sharding.needs_redistribute
    ):
        return None
    output = made._spec
    shape, stride, _ = output.tensor_meta
    order = order_of(shape, stride)
    if order is None or layout_of(output.mesh, output.placements, len(shape)) is None:
        return None
    if order and any(1 in tensor._spec.shape for tensor in tensors_of(args)):
        return None
    return KnownClass(output, order, strategy_of(op))


def class_of(op: OpOverload, args: Args) -> Key | None:
    """Return the key of a call's shape class; None if its sizes matter.

    For example, the result of a pointwise op on inputs with different memory orders may have a
    memory order that depends on the sizes.
    """
    key: list[Any] = []
    orders = set()
    for value in args:
        if value.__class__ is DTensor:
            spec = value._spec
            shape, stride, dtype = spec.tensor_meta
            ndim = len(shape)
            layout = layout_of(spec.mesh, spec.placements, ndim)
            order = order_of(shape, stride)
            if layout is None or order is None or has_torch_function(value._local_tensor):
                return None
            parts = layout.parts
            # A decision does not depend on sizes of at least two elements for each part.
            ones = [dim for dim, size in enumerate(shape) if size < 2 * parts[dim]]
            if ones and (order or any(shape[dim] != 1 or parts[dim] != 1 for dim in ones)):
                return None
            key += layout, spec.shard_order, dtype, order, tuple(ones)
            orders.add((ndim, order) if order else ())
        elif op in _TRANSPOSITIONS:
            key.append(tuple(value) if value.__class__ is list else value)
        elif isinstance(value, int | float):
            key.append(type(value))  # torch treats the number as a tensor
        else:
            return None
    return tuple(key) if len(orders) < 2 or op in PRODUCTS else None
