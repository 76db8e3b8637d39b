"""All of torch that a variant could change, to be compared before and after."""

import logging
import sys
from types import FunctionType
from typing import Any

import torch
from torch.distributed.device_mesh import _mesh_resources
from torch.distributed.tensor import DTensor, _collective_utils, _redistribute
from torch.distributed.tensor._api import _FromTorchTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OpStrategy

from planners.dtensor.dispatch.torch_path import DISPATCHER, PROPAGATOR

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
    """Return all that a variant could have changed: every function and class of torch's, and more.

    The handlers are in it by content, as a table that is put back may have been added to.
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
    """Return what is told by numbers."""
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
