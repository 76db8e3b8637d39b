"""Gather the parameters of an FSDP2 block with views and sizes kept from step to step.

In each step torch makes the same views of the same buffers, and asks each parameter for its shard
through five calls.
"""

from collections.abc import Iterable, Sequence
from operator import is_
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.autograd import profiler
from torch.distributed import ProcessGroup, Work
from torch.distributed.device_mesh import _get_device_handle
from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param_group
from torch.distributed.fsdp._fully_shard._fsdp_param import (
    FSDPParam,
    ShardedState,
    alloc_storage,
)

from planners.dtensor.dispatch.torch_path import is_watched

_copy_out = _fsdp_collectives.foreach_all_gather_copy_out
_inputs = _fsdp_collectives._get_param_all_gather_inputs
_DEVICES = ("cpu", "cuda")  # others may have copies of their own


def quicker_gathering() -> Iterable[tuple[Any, str, Any]]:
    """Return the attributes to replace, as (owner, name, new value)."""
    known: WeakKeyDictionary[FSDPParam, _Gathered] = WeakKeyDictionary()

    def copy_out(result: Any, params: Sequence[FSDPParam], group: ProcessGroup) -> None:
        if is_seen():
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

    return [
        (_fsdp_param_group, "foreach_all_gather_copy_out", copy_out),
        (_fsdp_collectives, "_get_param_all_gather_inputs", _shards),
    ]


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


def _shards(params: list[FSDPParam]) -> list[list[torch.Tensor]]:
    """Return the local shards to gather; torch's own function converts, offloads, or extends."""
    if is_seen() or not all(map(_is_gathered_as_it_is, params)):
        shards: list[list[torch.Tensor]] = _inputs(params)
        return shards
    return [[param._sharded_param_data] for param in params]


def _is_gathered_as_it_is(param: FSDPParam) -> bool:
    return (
        param.sharded_state is ShardedState.SHARDED
        and param.param_dtype is None
        and not param.offload_to_cpu
        and type(param.sharded_param._local_tensor) is torch.Tensor
    )


def is_seen() -> bool:
    """Return whether torch's own marks and ops have to run, as a profiler or others see them."""
    return bool(
        is_watched()
        or profiler._is_profiler_enabled  # in any thread, as it may profile all of them
        or torch.autograd._profiler_enabled()
        or torch.is_inference_mode_enabled()
    )
