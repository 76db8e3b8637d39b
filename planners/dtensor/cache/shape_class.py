"""A cache with keys that exclude all sizes that cannot change a decision.

An op that needs no redistribution at one size needs none at any other size with enough elements for
every rank. Placements alone decide: torch takes the last strategy with the placements of the
inputs. Torch's other tests of sizes (is there a row for every rank, is a dimension of size 1
broadcast) have the same results. So the cache stores the placements of a result for all sizes, and
computes the result's size from the inputs' sizes. The cache of recipes by exact size handles all
other cases: redistributions, which torch chooses by cost; dimensions with fewer than two elements
for each rank; strides with gaps; keyword arguments; and all ops except matrix products, pointwise
ops and transpositions.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OutputSharding

from planners.dtensor.cache.interned import InternedDispatch, Table
from planners.dtensor.cache.keys import Key, LeftToTorch, Specs, reader, tensors_of
from planners.dtensor.cache.recipes import result_of
from planners.dtensor.dispatch.base import BoundedTable
from planners.dtensor.dispatch.specs import copy_of, layout_of
from planners.dtensor.dispatch.torch_path import (
    Args,
    Kwargs,
    has_torch_function,
    strategy_of,
    traits,
)
from planners.dtensor.search.tensor_meta import (
    PRODUCTS,
    broadcasts_to,
    is_pointwise,
    order_of,
    stride_of,
)

Shape = Sequence[int]

ShapeRule = Callable[[Args, Sequence[Shape]], Shape | None]
"""Returns the shape of an op's result, from its arguments and the shapes of its tensors; None where
these do not fit."""

_aten = torch.ops.aten


def _of_product(_: Args, shapes: Sequence[Shape]) -> Shape | None:
    *summand, left, right = shapes
    *batch, rows, inner = left
    *other_batch, other_inner, columns = right
    if inner != other_inner or batch != other_batch:
        return None
    made = (*batch, rows, columns)
    return made if not summand or broadcasts_to(summand[0], made) else None


def _of_pointwise(_: Args, shapes: Sequence[Shape]) -> Shape | None:
    first, *others = shapes
    if others.count(first) == len(others):
        return first
    try:
        whole: Shape = torch.broadcast_shapes(*shapes)
    except RuntimeError:
        return None
    return whole


def _transposed(args: Args, shapes: Sequence[Shape]) -> Shape:
    _, first, second = args
    made = list(shapes[0])
    made[first], made[second] = made[second], made[first]
    return made


_TRANSPOSITIONS: dict[OpOverload, ShapeRule] = {
    _aten.t.default: lambda _, shapes: shapes[0][::-1],
    _aten.transpose.int: _transposed,
    _aten.permute.default: lambda args, shapes: [shapes[0][dim] for dim in args[1]],
}


def _shape_rule(op: OpOverload) -> ShapeRule | None:
    """Return an op's rule for the shape of its result; None if it cannot be cached by class."""
    if not traits(op).makes_one_tensor:
        return None
    if op in PRODUCTS:
        return _of_product
    return _TRANSPOSITIONS.get(op) or (_of_pointwise if is_pointwise(op) else None)


class KnownClass(NamedTuple):
    """The placements and memory order of an op's result, for all inputs of one shape class.

    They are valid as long as torch's strategy for the op is `strategy`.
    """

    output: DTensorSpec
    order: tuple[int, ...]
    strategy: object
    rule: ShapeRule


class ShapeClass(InternedDispatch):
    """A cache of recipes by exact size; on a miss, of placements by shape class."""

    def __init__(self, **limits: int) -> None:
        super().__init__(**limits)
        self._classes: dict[OpOverload, BoundedTable[Key, KnownClass]] = {}

    def forget(self) -> None:
        """Delete all shape classes and recipes."""
        super().forget()
        for classes in list(self._classes.values()):
            classes.clear()

    def decided(self, op: OpOverload, args: Args, kwargs: Kwargs) -> OutputSharding | None:
        """Return this cache's decision for a call; None if torch decided the call."""
        try:
            recipe = self._tables[op].entries.get(reader(op)(args, kwargs)[0])
        except (LeftToTorch, TypeError):
            return None
        if recipe is not None and recipe.sharding is not None:
            return recipe.sharding
        if recipe is None and (kwargs or self._known(op, args)[0] is None):
            return None
        return OutputSharding(None)  # a decision by class moves no input

    def _filled(self) -> list[BoundedTable[Any, Any]]:
        return super()._filled() + [table for table in [*self._classes.values()] if table.entries]

    def _made_by_class(self, op: OpOverload, args: Args) -> DTensor | None:
        known, shapes = self._known(op, args)
        if known is None or known.strategy is not strategy_of(op):
            return None
        shape = known.rule(args, shapes)
        if shape is None:
            return None
        try:
            made = op._op(*[getattr(value, "_local_tensor", value) for value in args])
        except RuntimeError:  # torch has the better error message, about the whole tensors
            return None
        self.hits += 1
        dtype = known.output.tensor_meta.dtype  # of bools the local result may have another type
        meta = TensorMeta(torch.Size(shape), stride_of(shape, known.order), dtype)
        mesh = next(
            tensors_of(args)
        )._spec.mesh  # the known one may have other ranks or dead groups
        spec = copy_of(known.output, mesh=mesh, tensor_meta=meta, _hash=None)
        result: DTensor = result_of(spec, op in _TRANSPOSITIONS)(made, args)
        return result

    def _known(self, op: OpOverload, args: Args) -> tuple[KnownClass | None, list[Shape]]:
        classes = self._classes.get(op)
        if classes is None:
            return None, []
        class_key, shapes = _class_of(op, args)
        return classes.entries.get(class_key) if class_key else None, shapes

    def _learned(
        self, op: OpOverload, args: Args, kwargs: Kwargs, key: Key, specs: Specs, table: Table
    ) -> Any:
        """Let torch run an op that has neither a recipe nor a class, and store both."""
        made = super()._learned(op, args, kwargs, key, specs, table)
        recipe, rule = table.entries.get(key), _shape_rule(op)
        if recipe is None or recipe.result is None or rule is None or kwargs:
            return made
        sharding, output = recipe.sharding, made._spec
        class_key, shapes = _class_of(op, args)
        shape, stride, _ = output.tensor_meta
        order = order_of(shape, stride)
        if (
            class_key is not None
            and sharding is not None
            and not sharding.needs_redistribute
            and order is not None
            and layout_of(output.mesh, output.placements, len(shape)) is not None
            and not (order and any(1 in shape for shape in shapes))
        ):
            known = KnownClass(output, order, strategy_of(op), rule)
            self._classes.setdefault(op, BoundedTable(self._most_entries)).add(class_key, known)
        return made


def _class_of(op: OpOverload, args: Args) -> tuple[Key | None, list[Shape]]:
    """Return the key of a call's shape class, and the shapes of the call's tensors.

    The key is None if sizes matter. For example, the result of a pointwise op on inputs with
    different memory orders may have a memory order that depends on the sizes.
    """
    key: list[Any] = []
    shapes: list[Shape] = []
    orders = set()
    for value in args:
        if value.__class__ is DTensor:
            spec = value._spec
            shape, stride, dtype = spec.tensor_meta
            ndim = len(shape)
            layout = layout_of(spec.mesh, spec.placements, ndim)
            order = order_of(shape, stride)
            if layout is None or order is None or has_torch_function(value._local_tensor):
                return None, shapes
            parts = layout.parts
            # A decision does not depend on sizes of at least two elements for each part.
            ones = [dim for dim, size in enumerate(shape) if size < 2 * parts[dim]]
            if ones and (order or any(shape[dim] != 1 or parts[dim] != 1 for dim in ones)):
                return None, shapes
            key += layout, spec.shard_order, dtype, order, tuple(ones)
            orders.add((ndim, order) if order else ())
            shapes.append(shape)
        elif op in _TRANSPOSITIONS:
            key.append(tuple(value) if value.__class__ is list else value)
        elif isinstance(value, int | float):
            key.append(type(value))  # torch treats the number as a tensor
        else:
            return None, shapes
    return tuple(key) if len(orders) < 2 or op in PRODUCTS else None, shapes
