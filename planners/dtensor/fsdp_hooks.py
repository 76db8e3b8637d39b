"""Do not repeat in each step what FSDP2's hooks do without need.

For each sharded module and step, torch's hooks enter a dozen marks for profilers, although none
runs; read the signature of one autograd function; and make the same views of the same buffers to
gather parameters.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from operator import is_
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd import Function, profiler
from torch.distributed import ProcessGroup, Work
from torch.distributed.device_mesh import _get_device_handle
from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param_group
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam, alloc_storage
from torch.profiler import record_function

from planners.dtensor.dispatch.torch_path import is_watched
from planners.instruments import replaced

_NO_MARK = nullcontext()
_DEVICES = ("cpu", "cuda")  # others may have copies of their own
_Registering = _fsdp_param_group.RegisterPostBackwardFunction
_register = _Registering.apply
_register_directly = super(Function, _Registering).apply
_copy_out = _fsdp_collectives.foreach_all_gather_copy_out


@contextmanager
def quicker_hooks() -> Iterator[None]:
    """Inside the context, the hooks of `fully_shard` repeat less."""
    with replaced(
        [
            (_fsdp_param_group, "record_function", _Mark),
            (_Registering, "apply", _registered),
            (_fsdp_param_group, "foreach_all_gather_copy_out", _copying_out()),
        ]
    ):
        yield


def _is_seen() -> bool:
    """Return whether torch's own marks and ops have to run, as a profiler or others see them."""
    return bool(
        is_watched()
        or profiler._is_profiler_enabled  # in any thread, as it may profile all of them
        or torch.autograd._profiler_enabled()
        or torch.is_inference_mode_enabled()
    )


class _Mark(record_function):
    """Makes torch's mark if a profiler or others see it, otherwise a context that does nothing."""

    def __new__(cls, name: str, args: str | None = None) -> AbstractContextManager[Any]:  # type: ignore[misc]
        return record_function(name, args) if _is_seen() else _NO_MARK


def _registered(*args: Any) -> Any:
    """Apply the autograd function without binding its arguments, as it has no default values."""
    return _register(*args) if is_watched() else _register_directly(*unwrap_dead_wrappers(args))


def _copying_out() -> Callable[..., None]:
    """Return a function that copies gathered parameters into views which it keeps by block."""
    known: WeakKeyDictionary[FSDPParam, _Gathered] = WeakKeyDictionary()

    def copy_out(result: Any, params: Sequence[FSDPParam], group: ProcessGroup) -> None:
        if _is_seen():
            _copy_out(result, params, group)
            return
        gathered, ranks = known.get(params[0]), group.size()
        lists = [param.all_gather_outputs for param in params]
        if (
            gathered is None
            or (ranks, len(lists)) != (gathered.ranks, len(gathered.lists))
            or not all(map(is_, lists, gathered.lists))
        ):
            _copy_out(result, params, group)
            if made := _gathered(result, params, ranks):
                known[params[0]] = made
            return
        if result.all_gather_event is not None:
            device = result.all_gather_output.device.type
            _get_device_handle(device).current_stream().wait_event(result.all_gather_event)
        if isinstance(result.all_gather_work, Work):
            result.all_gather_work.wait()
        for (output,) in lists:
            alloc_storage(output)
        parts, sizes = result.all_gather_output.view(ranks, -1), result.all_gather_input_split_sizes
        with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(gathered.views):
            torch.split_with_sizes_copy(parts, sizes, dim=1, out=gathered.views)

    return copy_out


class _Gathered(NamedTuple):
    """The buffers of a block's gathered parameters, and their views with a row for each rank."""

    lists: Sequence[list[torch.Tensor]]
    views: tuple[torch.Tensor, ...]
    ranks: int


def _gathered(result: Any, params: Sequence[FSDPParam], ranks: int) -> _Gathered | None:
    """Return the buffers after torch's copies; None if torch's copies need more than views."""
    lists = [param.all_gather_outputs for param in params]
    outputs = [output for outputs in lists for output in outputs]
    if len(outputs) != len(params) or any(param.fsdp_placement.dim for param in params):
        return None
    dtype = result.all_gather_output.dtype
    if any(
        output.dtype != dtype or output.is_inference() or output.device.type not in _DEVICES
        for output in outputs
    ):
        return None
    with torch.no_grad():
        return _Gathered(lists, tuple(output.view(ranks, -1) for output in outputs), ranks)
