"""Count the work of any dispatch, by wrappers around torch's functions."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.tensor import _op_schema, _sharding_prop
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy, OutputSharding
from torch.utils import _pytree

from harness.contract import Recorder
from planners.dtensor import problem
from planners.dtensor.counting.collectives import counted_collectives
from planners.dtensor.counting.keeping import kept_per_step
from planners.dtensor.decision import Decision, Rewritten
from planners.dtensor.dispatch.base import Dispatch, bytes_held
from planners.dtensor.dispatch.torch_path import DISPATCHER, PROPAGATOR
from planners.dtensor.programs import training
from planners.dtensor.programs.program import OpProgram
from planners.dtensor.search import staying
from planners.instruments import replaced

_PASSES = (
    (_pytree, "tree_flatten"),
    (_pytree, "tree_leaves"),
    (_op_schema, "tree_leaves"),
    (_pytree.TreeSpec, "unflatten"),
)


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
        *((owner, name, _counted_pass(recorder, getattr(owner, name))) for owner, name in _PASSES),
        (problem, "call", called),
        *counted_collectives(recorder),
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


def _counted_pass(recorder: Recorder, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a recursive function with its outermost calls counted as pytree passes."""
    is_inside = False

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_inside
        if is_inside or recorder.current is None:
            return function(*args, **kwargs)
        recorder.counters["pytree_passes"] += 1
        is_inside = True
        try:
            return function(*args, **kwargs)
        finally:
            is_inside = False

    return counted


def _hits(dispatch: Dispatch) -> int:
    """Return the hits since the caches were cleared, in C++ and in the dispatch's cache."""
    in_cpp, _ = torch._C._get_DTensor_sharding_propagator_cache_stats()
    return int(in_cpp) + dispatch.cache_info().hits
