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

from planners.dtensor.cache.interned import InternedDispatch
from planners.dtensor.cache.keys import Key, KeyRule, specs_of
from planners.dtensor.cache.recipe_handlers import Table
from planners.dtensor.cache.recipes import Recipe, make_dtensor, one_of
from planners.dtensor.dispatch.base import BoundedTable
from planners.dtensor.dispatch.specs import with_meta
from planners.dtensor.dispatch.torch_path import (
    Args,
    Handler,
    Kwargs,
    alias_storage,
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

MOST_CLASSES = 1024
"""The most classes that are kept for one op."""

Shape = Sequence[int]

ShapeRule = Callable[[Args, Sequence[Shape]], Shape | None]
"""Returns the shape of an op's result, from its arguments and the shapes of its tensors; None where
these do not fit."""

_aten = torch.ops.aten

_TRANSPOSITIONS: dict[OpOverload, ShapeRule] = {
    _aten.t.default: lambda _, shapes: shapes[0][::-1],
    _aten.transpose.int: lambda args, shapes: _transposed(shapes[0], *args[1:]),
    _aten.permute.default: lambda args, shapes: [shapes[0][dim] for dim in args[1]],
}


def shape_rule(op: OpOverload) -> ShapeRule | None:
    """Return an op's rule for the shape of its result; None if it cannot be cached by class."""
    if not traits(op).makes_one_tensor:
        return None
    if op in PRODUCTS:
        return _of_product
    return _TRANSPOSITIONS.get(op) or (_of_pointwise if is_pointwise(op) else None)


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


def _transposed(shape: Shape, first: int, second: int) -> Shape:
    made = list(shape)
    made[first], made[second] = made[second], made[first]
    return made


class KnownClass(NamedTuple):
    """The placements and memory order of an op's result, for all inputs of one shape class.

    They are valid as long as torch's strategy for the op is `strategy`.
    """

    output: DTensorSpec
    order: tuple[int, ...]
    strategy: object
    compute: Callable[..., Any]  # torch's fastest function for local tensors of these types
    rule: ShapeRule


Classes = BoundedTable[Key | None, KnownClass]


class ShapeClass(InternedDispatch):
    """A cache of recipes by exact size; on a miss, of placements by shape class."""

    def __init__(self, most_classes: int = MOST_CLASSES, **limits: int) -> None:
        super().__init__(**limits)
        self._most_classes = most_classes
        self._classes: dict[OpOverload, Classes] = {}

    def forget(self) -> None:
        """Delete all shape classes and recipes."""
        super().forget()
        for classes in self._classes.values():
            classes.clear()

    def decided(self, op: OpOverload, args: Args, kwargs: Kwargs) -> OutputSharding | None:
        """Return this cache's decision for a call; None if torch decided the call."""
        key, table, classes = KeyRule.of(op).key(args, kwargs), self._tables.get(op), self._classes
        recipe = table.entries.get(key) if table and key else None
        if recipe is not None and recipe.sharding is not None:
            return recipe.sharding
        if recipe is None and (kwargs or op not in classes):
            return None
        is_by_class = recipe is not None or self._class_of(op, args)[0] in classes[op].entries
        return OutputSharding(None) if is_by_class else None  # a decision that moves no input

    def _filled(self) -> list[BoundedTable[Any, Any]]:
        return super()._filled() + [table for table in [*self._classes.values()] if table.entries]

    def _general(self, op: OpOverload, table: Table) -> Handler:
        exact = super()._general(op, table)
        if shape_rule(op) is None:
            return exact
        classes = self._classes.setdefault(op, BoundedTable(self._most_classes))
        class_of = self._class_of

        def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
            if has_new_spec(args) and not kwargs:
                class_key, shapes = class_of(op, args)
                made = self._made(op, args, shapes, classes.entries.get(class_key))
                if made is not None:
                    return made
            return exact(op, args, kwargs)

        return handler

    def _missed(
        self, rule: KeyRule, table: Table, op: OpOverload, args: Args, kwargs: Kwargs, key: Key
    ) -> Any:
        """Run an op without a recipe by its shape class; if the class is new, let torch run it."""
        classes = self._classes.get(op)
        if classes is None:
            return super()._missed(rule, table, op, args, kwargs, key)
        class_key, shapes = (None, []) if kwargs else self._class_of(op, args)
        made = self._made(op, args, shapes, classes.entries.get(class_key))
        if made is not None:
            hash(made._spec)
            result = one_of(made._spec, traits(op).is_view)
            self._keep(table, key, Recipe(specs_of(args), None, made._spec, (), op._op, result))
            return made
        of_torch = super()._missed(rule, table, op, args, kwargs, key)
        recipe = table.entries.get(key)
        if class_key and recipe is not None and recipe.sharding is not None:
            known = self._known(op, recipe, shapes)
            if known is not None:
                classes.add(class_key, known)
        return of_torch

    def _known(self, op: OpOverload, recipe: Recipe, shapes: Sequence[Shape]) -> KnownClass | None:
        """Return a cache entry for the shape class of a recipe; None if it fits one size only."""
        sharding, output = recipe.sharding, recipe.output
        if sharding is None or sharding.needs_redistribute or not isinstance(output, DTensorSpec):
            return None
        shape, stride, _ = output.tensor_meta
        order = order_of(shape, stride)
        is_cut_plainly = self.layouts.of(output.mesh, output.placements, len(shape)) is not None
        rule = shape_rule(op)
        has_ones = any(1 in shape for shape in shapes)
        if not is_cut_plainly or rule is None or order is None or (order and has_ones):
            return None
        return KnownClass(output, order, strategy_of(op), recipe.compute, rule)

    def _made(
        self, op: OpOverload, args: Args, shapes: Sequence[Shape], known: KnownClass | None
    ) -> DTensor | None:
        """Return the result of an op by its class entry; None if torch must run the op."""
        if known is None or known.strategy is not strategy_of(op):
            return None
        shape = known.rule(args, shapes)
        if shape is None:
            return None
        try:
            made = known.compute(
                *[value._local_tensor if value.__class__ is DTensor else value for value in args]
            )
        except RuntimeError:  # torch has the better error message, about the whole tensors
            return None
        self.tally.hits += 1
        dtype = known.output.tensor_meta.dtype  # of bools the local result may have another type
        meta = TensorMeta(torch.Size(shape), stride_of(shape, known.order), dtype)
        spec = with_meta(known.output, meta)
        result = make_dtensor(DTensor, made, spec, requires_grad=made.requires_grad)
        if op in _TRANSPOSITIONS:
            alias_storage(result, args[0])
        return result

    def _class_of(self, op: OpOverload, args: Args) -> tuple[Key | None, list[Shape]]:
        """Return the key of a call's shape class, and the shapes of the call's tensors.

        The key is None if sizes matter. For example, the result of a pointwise op on inputs with
        different memory orders may have a memory order that depends on the sizes.
        """
        key: list[Any] = []
        shapes: list[Shape] = []
        orders = set()
        layout_of = self.layouts.of
        for value in args:
            if value.__class__ is DTensor:
                spec = value._spec
                shape, stride, dtype = spec.tensor_meta
                ndim = len(shape)
                layout = layout_of(spec.mesh, spec.placements, ndim)
                ones = layout.ones(shape) if layout else None
                order = None if ones is None else order_of(shape, stride)
                if order is None or (ones and order) or has_torch_function(value._local_tensor):
                    return None, shapes
                key += layout, dtype, order, ones
                orders.add((ndim, order) if order else ())
                shapes.append(shape)
            elif op in _TRANSPOSITIONS:
                key.append(tuple(value) if value.__class__ is list else value)
            elif isinstance(value, int | float):
                key.append(type(value))  # torch treats the number as a tensor
            else:
                return None, shapes
        return tuple(key) if len(orders) < 2 or op in PRODUCTS else None, shapes


def has_new_spec(args: Args) -> bool:
    """Whether an input's spec has no hash yet, so that no recipe can contain the spec."""
    for value in args:  # noqa: SIM110 - a generator would take twice as long
        if type(value) is DTensor and value._spec._hash is None:
            return True
    return False
