"""Do not repeat in each step what FSDP2's hooks do without need.

For each sharded module and step, torch's hooks enter a dozen marks for profilers, although none
runs; make five functions that are exempt from compiling, the same in every step; read the signature
of one autograd function; and make a DTensor of each gradient through constructors that do nothing.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch._dynamo import decorators
from torch.autograd import function
from torch.distributed.fsdp._fully_shard import _fsdp_param, _fsdp_param_group
from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.profiler import record_function

from planners.dtensor.cache.recipes import make_dtensor
from planners.dtensor.fsdp_gathering import quicker_gathering
from planners.instruments import replaced

_NO_MARK = nullcontext()
_REASON = "skipping FSDP hooks"
_HOOKS = frozenset(
    inspect.unwrap(hook)
    for hook in (
        FSDPState._pre_forward,
        FSDPState._post_forward,
        FSDPState._pre_backward,
        FSDPState._root_post_backward_final_callback,
        _fsdp_param_group.FSDPParamGroup.pre_backward,
        _fsdp_param_group.FSDPParamGroup.post_backward,
    )
)
_REGISTERING = _fsdp_param_group.RegisterPostBackwardFunction.forward
_SIGNATURE = inspect.signature(_REGISTERING)


@contextmanager
def quicker_hooks() -> Iterator[None]:
    """Inside the context, the hooks of `fully_shard` repeat less."""
    with replaced(
        [
            (_fsdp_param_group, "record_function", _mark),
            (_fsdp_param, "_from_local_no_grad", _from_local),
            (decorators, "DisableContext", _disabled_once()),
            (function, "inspect", SimpleNamespace(signature=_signature)),
            *quicker_gathering(),
        ]
    ):
        yield


def _mark(name: str, args: str | None = None) -> AbstractContextManager[Any]:
    return record_function(name, args) if torch.autograd._profiler_enabled() else _NO_MARK


def _from_local(local: torch.Tensor, spec: DTensorSpec) -> DTensor:
    if type(local) is not torch.Tensor:
        return DTensor(local, spec, requires_grad=local.requires_grad)
    return make_dtensor(DTensor, local, spec, requires_grad=local.requires_grad)


def _signature(called: Callable[..., Any]) -> inspect.Signature:
    return _SIGNATURE if called is _REGISTERING else inspect.signature(called)


def _disabled_once() -> Callable[..., Any]:
    """Return a `DisableContext` that makes the function of each hook once; for others, torch's."""
    disable = decorators.DisableContext
    made: dict[Any, Any] = {}

    def context(msg: str | None = None, wrapping: bool = True) -> Any:
        def disabled(hook: Any) -> Any:
            if hook in made:
                return made[hook]
            function = disable(msg=msg, wrapping=wrapping)(hook)
            return made.setdefault(hook, function) if hook in _HOOKS else function

        return disabled if msg == _REASON else disable(msg=msg, wrapping=wrapping)

    return context
