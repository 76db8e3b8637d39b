"""Snapshots of torch's functions, classes and settings, and changes that a program may make."""

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any
from unittest import mock

import torch
from torch.distributed.device_mesh import _mesh_resources
from torch.distributed.tensor import DTensor, _collective_utils, _redistribute

from planners.dtensor.dispatch.torch_path import DISPATCHER, PROPAGATOR, clear_torch_caches

MODULES = ("torch.distributed.tensor", "torch.distributed.device_mesh", "torch.utils._pytree")


def torch_now(modules: tuple[str, ...] = MODULES) -> dict[str, Any]:
    """Return what torch's modules, classes, dispatcher, propagator and handlers hold, by name."""
    found: dict[str, Any] = {"class of the dispatcher": type(DISPATCHER)}
    for module_name, module in list(sys.modules.items()):
        if not (module_name.startswith(modules) and isinstance(module, ModuleType)):
            continue
        for name, value in list(vars(module).items()):
            # `isinstance` asks some deprecated objects for their class, and they warn
            is_class = issubclass(type(value), type)
            if is_class or issubclass(type(value), FunctionType | BuiltinFunctionType):
                found[f"{module_name}.{name}"] = value
            if is_class and value.__module__ == module_name:
                for inner, method in list(vars(value).items()):
                    found[f"{module_name}.{name}.{inner}"] = method
    for owner in (PROPAGATOR, DISPATCHER):
        kind = next(kind for kind in type(owner).__mro__ if kind.__module__.startswith("torch"))
        for name, value in list(vars(owner).items()):
            found[f"torch.distributed.tensor.{kind.__name__}().{name}"] = value
    return found | {f"handler of {op}": value for op, value in handlers().items()}


def changed(before: dict[str, Any], modules: tuple[str, ...] = MODULES) -> set[str]:
    """Return the names that hold something else than in a snapshot."""
    now = torch_now(modules)
    either = before.keys() | now.keys()
    return {name for name in either if before.get(name) is not now.get(name)}


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


def handlers() -> dict[Any, Any]:
    return DTensor._op_dispatcher._custom_op_handlers


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
