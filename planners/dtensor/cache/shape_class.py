"""A cache whose key leaves out the sizes that cannot change a decision.

An op that needs no redistribution needs none at any other size either, as long as every shard is
even, for it is chosen by placements alone: torch takes the last strategy whose placements are those
of the inputs, and what else it asks of sizes (is there a row for every rank, is a dimension of size
1 broadcast) has the same answer. Where the result lies is then known before its size, which follows
from the local result. What is not so plain is left to plans by exact size: redistributions, uneven
shards, dimensions of size 0 or 1, strides with gaps, views, ops with keyword arguments, and all ops
but matrix products and pointwise ones.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OutputSharding

from planners.dtensor.cache.interned import InternedDispatch
from planners.dtensor.cache.keys import Key, KeyRule, specs_of
from planners.dtensor.cache.plan_handlers import Table
from planners.dtensor.cache.plans import OpPlan, local_args, make_dtensor, one_of
from planners.dtensor.dispatch.specs import with_meta
from planners.dtensor.dispatch.tables import BoundedTable
from planners.dtensor.dispatch.torch_path import Args, Handler, Kwargs, strategy_of, traits
from planners.dtensor.search.tensor_meta import PRODUCTS, is_pointwise

MOST_CLASSES = 1024
"""How many classes are kept for one op, unless told otherwise."""

global_info = torch._C._DTensor_compute_global_tensor_info


def has_classes(op: OpOverload) -> bool:
    """Whether the decision for an op depends on its sizes in the ways described above only."""
    of_op = traits(op)
    return of_op.makes_one_tensor and not of_op.is_view and (op in PRODUCTS or is_pointwise(op))


class ShapeClass(InternedDispatch):
    """Plans by exact size, and behind them placements by class of shapes."""

    def __init__(self, most_classes: int = MOST_CLASSES) -> None:
        super().__init__()
        self._most_classes = most_classes
        self._classes: dict[OpOverload, Classes] = {}

    def forget(self) -> None:
        """Forget all classes and plans."""
        super().forget()
        for classes in self._classes.values():
            classes.clear()

    def decided(self, op: OpOverload, args: Args, kwargs: Kwargs) -> OutputSharding | None:
        """Return what was decided here for an op; None where that was torch itself."""
        key, table, classes = KeyRule.of(op).key(args, kwargs), self._tables.get(op), self._classes
        plan = table.entries.get(key) if table and key else None
        if plan is not None and plan.sharding is not None:
            return plan.sharding
        if plan is None and (kwargs or op not in classes):
            return None
        is_by_class = plan is not None or class_of(op, args) in classes[op].entries
        return OutputSharding(None) if is_by_class else None  # which moves nothing

    def _kept(self) -> list[Any]:
        known = [each for one in self._classes.values() for each in list(one.entries.values())]
        return super()._kept() + known

    def _general(self, op: OpOverload, table: Table) -> Handler:
        exact = super()._general(op, table)
        if not has_classes(op):
            return exact
        classes = self._classes.setdefault(op, BoundedTable(self._most_classes))

        def handler(op: OpOverload, args: Args, kwargs: Kwargs) -> Any:
            if has_new_spec(args) and not kwargs:
                made = self._made(op, args, classes.entries.get(class_of(op, args)))
                if made is not None:
                    return made
            return exact(op, args, kwargs)

        return handler

    def _missed(
        self, rule: KeyRule, table: Table, op: OpOverload, args: Args, kwargs: Kwargs, key: Key
    ) -> Any:
        """Find the class of an op for whose exact size there is no plan; keep what is found."""
        classes = self._classes.get(op)
        if classes is None:
            return super()._missed(rule, table, op, args, kwargs, key)
        of_class = None if kwargs else class_of(op, args)
        made = self._made(op, args, classes.entries.get(of_class))
        if made is not None:
            hash(made._spec)
            result = one_of(made._spec, is_view=False)
            table.add(key, OpPlan(specs_of(args), None, made._spec, (), op._op, result))
            return made
        of_torch = super()._missed(rule, table, op, args, kwargs, key)
        plan = table.entries.get(key)
        if plan is None or plan.sharding is None or not of_class:
            return of_torch
        if not isinstance(plan.output, DTensorSpec):
            return of_torch
        order = order_of(*plan.output.tensor_meta[:2])
        if order is not None and not plan.sharding.needs_redistribute:  # all inputs stay
            known = KnownClass(plan.output.mesh, plan.output, order, strategy_of(op))
            classes.add(of_class, known)
        return of_torch

    def _made(self, op: OpOverload, args: Args, known: "KnownClass | None") -> DTensor | None:
        """Return the result of an op by its class; None where torch has to look at it."""
        if known is None or known.strategy is not strategy_of(op):
            return None
        try:
            made = op._op(*local_args(args, ()))
        except RuntimeError:  # torch says better what is wrong with the whole tensors
            return None
        shape, _ = global_info(made, known.mesh, known.output.placements)
        self.tally.hits += 1
        dtype = known.output.tensor_meta.dtype  # for bools torch may make another type
        meta = TensorMeta(torch.Size(shape), stride_of(shape, known.order), dtype)
        spec = with_meta(known.output, meta)
        return make_dtensor(DTensor, made, spec, requires_grad=made.requires_grad)


class KnownClass(NamedTuple):
    """Where the result of an op lies on inputs of a class, and in which order in memory.

    The mesh is kept alive with it. It holds as long as torch has the same strategy for the op.
    """

    mesh: DeviceMesh
    output: DTensorSpec
    order: tuple[int, ...]
    strategy: object


Classes = BoundedTable[Key | None, KnownClass]


def has_new_spec(args: Args) -> bool:
    """Whether an input's spec has not been hashed yet, so that no plan can know it."""
    for each in args:  # noqa: SIM110 - a generator would take twice as long
        if type(each) is DTensor and each._spec._hash is None:
            return True
    return False


def order_of(shape: Sequence[int], stride: Sequence[int]) -> tuple[int, ...] | None:
    """Return the dimensions from the last to the first in memory; None where there are gaps.

    The empty order stands for the usual one, in which the last dimension comes last.
    """
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
    stride = [1] * len(shape)
    step = 1
    for dim in order or range(len(shape) - 1, -1, -1):
        stride[dim] = step
        step *= shape[dim]
    return tuple(stride)


def class_of(op: OpOverload, args: Args) -> Key | None:
    """Return what the decision for an op depends on but for its sizes; None where they matter.

    Pointwise, inputs of different orders in memory make a result whose order may depend on sizes.
    """
    key: list[Any] = []
    layouts = set()
    for value in args:
        if type(value) is DTensor:
            described = _class_of_spec(value._spec)
            if described is None:
                return None
            key += described
            layouts.add(described[-2:] if described[-1] else ())
        elif isinstance(value, int | float):
            key.append(type(value))  # it takes part as a tensor
        else:
            return None
    return tuple(key) if len(layouts) < 2 or op in PRODUCTS else None


def _class_of_spec(spec: DTensorSpec) -> Key | None:
    """Return mesh, placements, type, and as a layout number and order in memory of dimensions."""
    shape, stride, dtype = spec.tensor_meta
    parts = [1] * len(shape)
    for count, placement in zip(spec.mesh.shape, spec.placements, strict=True):
        kind = type(placement)
        if kind is Shard:
            parts[placement.dim] *= count
        elif kind is not Replicate and kind is not Partial:
            return None
    for size, count in zip(shape, parts, strict=True):
        if size % count or size < 2 * count:
            return None
    order = order_of(shape, stride)
    if order is None:
        return None
    return id(spec.mesh), spec.placements, dtype, len(shape), order
