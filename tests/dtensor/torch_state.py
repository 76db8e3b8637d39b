"""Snapshots and changes of the state of torch that a variant or a program could change."""

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType
from typing import Any
from unittest import mock

import torch
from small_world import counted, placed
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh, _mesh_resources
from torch.distributed.tensor import DTensor, Shard, _collective_utils, _redistribute
from torch.distributed.tensor._api import _FromTorchTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OpStrategy, RuntimeSchemaInfo
from torch.distributed.tensor._ops.utils import register_op_strategy, replicate_op_strategy
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.nn import functional

from planners.dtensor.dispatch.torch_path import DISPATCHER, PROPAGATOR, clear_torch_caches

aten = torch.ops.aten

_CLASSES = (
    DTensor,
    DTensorSpec,
    OpSchema,
    OpStrategy,
    _FromTorchTensor,
    _redistribute.NestedRedistribute,
    type(DISPATCHER),
    type(PROPAGATOR),
    type(_mesh_resources),
)


def torch_now() -> dict[Any, Any]:
    """Return everything in torch that a variant could have changed, such as functions and classes.

    Each handler has an entry of its own, because a restored table may contain new handlers.
    """
    found: dict[Any, Any] = {}
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(("torch.distributed.tensor", "torch.utils._pytree")):
            for name, value in list(vars(module).items()):
                if isinstance(value, type | FunctionType):
                    found[module_name, name] = value
    for owner in _CLASSES:
        found |= {(owner, name): value for name, value in list(vars(owner).items())}
    for owner in (DISPATCHER, PROPAGATOR):
        found[owner, "class"] = type(owner)
        found |= {(owner, name): value for name, value in vars(owner).items()}
    found |= {("handler", op): value for op, value in DISPATCHER._custom_op_handlers.items()}
    return found


def settings_now() -> list[Any]:
    """Return torch's numeric settings: log levels, devices per host, threads."""
    loggers = (
        _collective_utils.logger,
        _redistribute.logger,
        logging.getLogger("torch.distributed.tensor._dispatch"),
    )
    return [
        *(logger.level for logger in loggers),
        _mesh_resources.num_devices_per_host("cpu"),
        torch.get_num_threads(),
    ]


def is_changed(before: dict[Any, Any]) -> bool:
    now = torch_now()
    return now.keys() != before.keys() or any(now[key] is not before[key] for key in now)


@contextmanager
def as_they_were() -> Iterator[None]:
    """On exit, restore torch's strategies and handlers and clear its caches."""
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
    """Return the cross-entropy loss of logits with sharded classes, and the logits' gradient."""
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
    """Register another strategy for an op until the context ends, as torch's own tests do."""
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
