"""Ask the meta device for shape, stride and type of an op's result, instead of a fake tensor.

After a miss torch runs the op on fake tensors to learn what it makes, a third of a millisecond or,
for shapes it has not seen, up to several. For matrix products, pointwise ops and views a tensor on
the meta device gives the same answer at once: all of it is the op's own code in C++.
"""

from collections.abc import Container
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
    """Whether the meta device is to be asked for what an op makes."""
    of_op = traits(op)
    return of_op.makes_one_tensor and (op in _VIEWS or op in PRODUCTS or is_pointwise(op))


def asked_directly(but_for: Container[OpOverload] = ()) -> AbstractContextManager[Any]:
    """Let torch ask the meta device in plain cases, but not for `but_for`, which may change."""
    ask_fake_tensors = PROPAGATOR._propagate_tensor_meta_non_cached

    def ask(schema: OpSchema) -> Any:
        if (
            is_asked_directly(schema.op)
            and schema.op not in but_for
            and not schema.kwargs_schema
            and not (modes_active() or _are_we_tracing())
            and (not is_pointwise(schema.op) or _are_alike(schema))
        ):
            meta = meta_of(schema)
            if meta is not None:
                return meta
        return ask_fake_tensors(schema)

    return mock.patch.object(PROPAGATOR, "_propagate_tensor_meta_non_cached", ask, create=True)


def meta_of(schema: OpSchema) -> TensorMeta | None:
    """Return the global shape, stride and type of what an op makes; None where it fails."""
    op, args = _without_summand(schema)
    try:
        made = op(
            *(on_meta_device(*a.tensor_meta) if isinstance(a, DTensorSpec) else a for a in args)
        )
    except Exception:  # torch says what is wrong when it is asked the other way
        return None
    return TensorMeta(made.shape, made.stride(), made.dtype)


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
