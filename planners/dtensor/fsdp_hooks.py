"""Do not repeat in each step what FSDP2's hooks do without need.

For each sharded module and step, torch's hooks enter a dozen marks for profilers, although none
runs; make five functions that are exempt from compiling, the same in every step; read the signature
of one autograd function; and make a DTensor of each gradient through constructors that do nothing.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch._dynamo import decorators
from torch._dynamo.eval_frame import DisableContext
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd import Function
from torch.distributed.fsdp._fully_shard import _fsdp_param, _fsdp_param_group
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.profiler import record_function

from planners.dtensor.cache.recipes import make_dtensor
from planners.dtensor.dispatch.torch_path import is_watched
from planners.dtensor.fsdp_gathering import is_seen, quicker_gathering
from planners.instruments import replaced

_REASON = "skipping FSDP hooks"
_MOST_HOOKS = 64
_NO_MARK = nullcontext()
_Registering = _fsdp_param_group.RegisterPostBackwardFunction
_register = _Registering.apply
_register_directly = super(Function, _Registering).apply
_exempted_once = lru_cache(_MOST_HOOKS)(DisableContext(msg=_REASON))


@contextmanager
def quicker_hooks() -> Iterator[None]:
    """Inside the context, the hooks of `fully_shard` repeat less."""
    with replaced(
        [
            (_fsdp_param_group, "record_function", _Mark),
            (_fsdp_param, "_from_local_no_grad", _from_local),
            (decorators, "DisableContext", _Exempting),
            (_Registering, "apply", _registered),
            *quicker_gathering(),
        ]
    ):
        yield


class _Mark(record_function):
    """Makes torch's mark if a profiler or others see it, otherwise a context that does nothing."""

    def __new__(cls, name: str, args: str | None = None) -> AbstractContextManager[Any]:  # type: ignore[misc]
        return record_function(name, args) if is_seen() else _NO_MARK


class _Exempting(DisableContext):
    """Makes torch's `DisableContext`; for FSDP2's hooks, a function that keeps its results."""

    def __new__(cls, msg: str | None = None, wrapping: bool = True) -> Any:
        return _exempted_once if msg == _REASON else DisableContext(msg, wrapping)


def _registered(*args: Any) -> Any:
    """Apply the autograd function without binding its arguments, as it has no default values."""
    return _register(*args) if is_watched() else _register_directly(*unwrap_dead_wrappers(args))


def _from_local(local: torch.Tensor, spec: DTensorSpec) -> DTensor:
    if is_watched() or type(local) is not torch.Tensor:
        return DTensor(local, spec, requires_grad=local.requires_grad)
    return make_dtensor(DTensor, local, spec, requires_grad=local.requires_grad)
