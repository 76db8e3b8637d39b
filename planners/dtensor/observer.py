"""Count the work of any dispatch, by wrappers around torch's functions."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.tensor import _op_schema, _sharding_prop, placement_types
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy, OutputSharding
from torch.utils import _pytree

from harness.contract import Recorder
from planners.dtensor import problem
from planners.dtensor.decision import Decision, Rewritten
from planners.dtensor.dispatch.base import Dispatch, bytes_held
from planners.dtensor.dispatch.torch_path import DISPATCHER, PROPAGATOR
from planners.dtensor.keeping import kept_per_step
from planners.dtensor.programs import training
from planners.dtensor.programs.world import OpProgram
from planners.dtensor.search import staying
from planners.instruments import replaced

_PASSES = (
    (_pytree, "tree_flatten"),
    (_pytree, "tree_leaves"),
    (_op_schema, "tree_leaves"),
    (_pytree.TreeSpec, "unflatten"),
)

_COLLECTIVES = (
    (placement_types, 0, "shard_dim_alltoall"),
    *(
        (_functional_collectives, 0, name)
        for name in (
            *("all_reduce", "all_gather_single", "all_gather_tensor"),
            *("reduce_scatter_single", "reduce_scatter_tensor"),
        )
    ),
    (dist, 0, "all_reduce"),
    *(
        (dist, 1, name)
        for name in (
            *("all_gather_into_tensor", "all_gather_single", "all_to_all_single"),
            *("reduce_scatter_tensor", "reduce_scatter_single"),
        )
    ),
)
"""The functions by which DTensor, FSDP2 and our own code communicate, and their input's place.

A release of torch has some of them. Where one calls another, the outermost call counts.
"""

_TRAINING = (
    *((training, name, name) for name in ("forward", "backward")),
    (training, "clip", "clipping"),
    (training, "take_step", "optimizer"),
    *(
        (FSDPParamGroup, name, name)
        for name in ("pre_forward", "post_forward", "pre_backward", "post_backward")
    ),
)
"""The parts of a training step under `fully_shard`, with the names of their phases.

`forward` and `backward` consist of kernels, autograd and modules; FSDP's hooks are not in them.
"""


def observe(recorder: Recorder) -> AbstractContextManager[None]:
    """Record counters and phases of every call of a program inside the context."""
    counters = recorder.counters
    decided: list[OutputSharding] = []
    propagate = recorder.timed("propagate", PROPAGATOR.propagate_op_sharding_non_cached)
    redistribute = recorder.timed("redistribute", DISPATCHER.redistribute_local_args)
    decide = recorder.timed("propagate", staying.decide_without_redistribution)
    select, call = _sharding_prop._select_min_cost_strategy, problem.call

    def propagated(*args: Any) -> OutputSharding:
        decided.append(propagate(*args))
        if recorder.current is not None:
            counters["misses"] += 1
        return decided[-1]

    def decided_here(schema: OpSchema) -> OutputSharding | None:
        found = decide(schema)
        if found is not None:
            decided.append(found)
            if recorder.current is not None:
                counters["misses"] += 1
                counters["strategies_expanded"] += 1
        return found

    def selected(strategy: OpStrategy, *rest: Any) -> OpSpec:
        if recorder.current is not None:
            counters["strategies_expanded"] += len(strategy.strategies)
        return select(strategy, *rest)

    def called(program: OpProgram, dispatch: Dispatch, rewritten: list[Rewritten]) -> Decision:
        """Call the program, and count its cache hits from the caches' own counters."""
        if recorder.current is None:
            return call(program, dispatch, rewritten)
        before = 0 if program.cold else _hits(dispatch)
        decision = call(program, dispatch, rewritten)
        counters["hits"] += _hits(dispatch) - before
        counters["lookups"] += counters["hits"] + counters["misses"]
        own = dispatch.cache_info()
        _, in_cpp = torch._C._get_DTensor_sharding_propagator_cache_stats()
        counters["cache_entries"] = own.entries + in_cpp
        kept = in_cpp if own.bytes else counters["cache_entries"]
        counters["cache_bytes"] = own.bytes + bytes_held(decided[len(decided) - kept :])
        if program.counts_kept:
            _count_kept(recorder, lambda: call(program, dispatch, rewritten), decided)
        return decision

    attributes: list[tuple[Any, str, Any]] = [
        (PROPAGATOR, "propagate_op_sharding_non_cached", propagated),
        (staying, "decide_without_redistribution", decided_here),
        (_sharding_prop, "_select_min_cost_strategy", selected),
        (DISPATCHER, "redistribute_local_args", redistribute),
        (DTensorSpec, "__init__", recorder.counted("specs_built", DTensorSpec.__init__)),
        *_counted_passes(recorder),
        (problem, "call", called),
        *_counted_collectives(recorder),
        *(
            (owner, name, recorder.timed(phase, getattr(owner, name)))
            for owner, name, phase in _TRAINING
        ),
    ]
    return replaced(attributes)


def _count_kept(recorder: Recorder, step: Callable[[], object], decided: list[Any]) -> None:
    """Count the objects that outlive a step, in extra steps that change no other counter."""

    def unrecorded() -> None:
        step()
        del decided[known:]  # the list serves `cache_bytes` alone

    known = len(decided)
    with recorder.phase("kept"):
        counters, phases = dict(recorder.counters), dict(recorder.phases)
        kept = kept_per_step(unrecorded)
        recorder.counters.clear()
        recorder.phases.clear()
        recorder.phases.update(phases)
    del recorder.phases["kept"]
    recorder.counters.update(counters, objects_kept=kept.objects, bytes_kept=kept.bytes)


def _counted_passes(recorder: Recorder) -> Iterator[tuple[Any, str, Any]]:
    """Yield pytree's functions as (owner, name, function that counts its outermost calls)."""

    def count(*_: Any, **__: Any) -> None:
        recorder.counters["pytree_passes"] += 1

    for owner, name in _PASSES:
        yield owner, name, _outermost(recorder, getattr(owner, name), count, set())


def _counted_collectives(recorder: Recorder) -> Iterator[tuple[Any, str, Any]]:
    """Yield the functions as (owner, name, function that counts its calls and bytes)."""
    running: set[Any] = set()
    for owner, place, name in _COLLECTIVES:
        if not hasattr(owner, name):
            continue

        def count(*args: Any, place: int = place, **kwargs: Any) -> None:
            tensor = args[place] if len(args) > place else kwargs["input"]
            recorder.counters["collectives"] += 1
            recorder.counters["collective_bytes"] += tensor.numel() * tensor.element_size()

        yield owner, name, _outermost(recorder, getattr(owner, name), count, running)


def _outermost(
    recorder: Recorder,
    function: Callable[..., Any],
    count: Callable[..., None],
    running: set[Any],
) -> Callable[..., Any]:
    """Return a function that calls `count` too, unless a function of the same `running` runs."""

    def called(*args: Any, **kwargs: Any) -> Any:
        if running or recorder.current is None:
            return function(*args, **kwargs)
        count(*args, **kwargs)
        running.add(function)
        try:
            return function(*args, **kwargs)
        finally:
            running.clear()

    return called


def _hits(dispatch: Dispatch) -> int:
    """Return the hits since the caches were cleared, in C++ and in the dispatch's cache."""
    in_cpp, _ = torch._C._get_DTensor_sharding_propagator_cache_stats()
    return int(in_cpp) + dispatch.cache_info().hits
