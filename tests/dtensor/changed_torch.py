"""Handlers and strategies that a program puts into torch, and torch as it was before."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from small_world import counted, placed
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._op_schema import OpStrategy, RuntimeSchemaInfo
from torch.distributed.tensor._ops.utils import register_op_strategy, replicate_op_strategy
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.nn import functional

from planners.dtensor.dispatch.torch_path import PROPAGATOR, clear_torch_caches

aten = torch.ops.aten


@contextmanager
def as_they_were() -> Iterator[None]:
    """Give torch the strategies, handlers and empty caches back that it had."""
    tables = [value for value in vars(PROPAGATOR).values() if isinstance(value, dict)]
    own = handlers()
    clear_torch_caches()
    try:
        with ExitStack() as stack:
            for table in (*tables, own):
                stack.enter_context(mock.patch.dict(table))
            yield
            DTensor._op_dispatcher._custom_op_handlers = own
    finally:
        clear_torch_caches()


def logits_of(mesh: DeviceMesh) -> DTensor:
    return placed(mesh, counted(4, 2) / 10, Shard(1)).detach().requires_grad_()


def lost(mesh: DeviceMesh, target: torch.Tensor | None = None) -> list[torch.Tensor]:
    """Return a loss whose classes are sharded, and its gradient."""
    logits = logits_of(mesh)
    rows = torch.arange(4) if target is None else target
    loss = functional.cross_entropy(logits, rows)
    loss.backward()
    return [loss, logits.grad]


def handlers() -> dict[Any, Any]:
    return DTensor._op_dispatcher._custom_op_handlers


def negated(op: Any, args: Any, kwargs: Any) -> DTensor:
    if op._schema.is_mutable:
        args[0]._local_tensor.neg_()
        return args[0]
    return -args[0]


@contextmanager
def op_strategy_context(op: OpOverload, strategy: Any, info: RuntimeSchemaInfo) -> Iterator[None]:
    """Give an op another strategy until left, as torch's own tests do."""
    tables: tuple[dict[OpOverload, Any], ...] = (
        PROPAGATOR.op_strategy_funcs,
        PROPAGATOR.op_to_schema_info,
        PROPAGATOR.op_single_dim_strategy_funcs,  # which torch looks at first
        PROPAGATOR.op_to_schema_info_for_single_dim_strategy,
    )
    before = [table.pop(op, None) for table in tables]
    register_op_strategy(op, info)(strategy)
    try:
        yield
    finally:
        for table, value in zip(tables, before, strict=True):
            table.pop(op, None)
            if value is not None:
                table[op] = value
        _clear_sharding_prop_cache()


def on_replicated(op_schema: Any) -> OpStrategy:
    return replicate_op_strategy(op_schema)
