"""Counts and times the steps of an EmbeddingShardingPlanner of any release, by wrapping methods.

Names that a release lacks are skipped: 1.5.0 has no annotations. Each release imports deepcopy in
another way, so all planner modules are searched for it.
"""

import copy
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any

from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import ShardingOption

from harness.contract import Recorder
from planners.instruments import replaced

_LOOKUPS = ("_get_annotated_method", "_get_coefficient_method")
# Commits from 2026-02-18 to 2026-03-03 name it V2, until that replaced the older one.
_ESTIMATORS = ("EmbeddingPerfEstimator", "EmbeddingPerfEstimatorV2")


def replace_timed(
    recorder: Recorder, component: Any, method: str, phase: str, counter: str = ""
) -> None:
    """Wrap a component's method to time it as a phase, and to count its calls in `counter`."""
    setattr(component, method, recorder.timed(phase, getattr(component, method), counter))


def observe_components(planner: EmbeddingShardingPlanner, recorder: Recorder) -> None:
    """Time a planner's components as phases, at the cost of a few wrapped calls per proposal."""
    replace_timed(recorder, planner._enumerator, "enumerate", "enumerate")
    replace_timed(recorder, planner._perf_model, "rate", "rate")
    replace_timed(recorder, planner._partitioner, "partition", "partition", "partitions")
    for proposer in planner._proposers:
        replace_timed(recorder, proposer, "load", "propose")
        replace_timed(recorder, proposer, "feedback", "propose")
        proposer.propose = recorder.timed("propose", _counted_proposals(recorder, proposer))


def phases(
    recorder: Recorder,
    observe: Callable[[EmbeddingShardingPlanner, Recorder], None] = observe_components,
) -> AbstractContextManager[None]:
    """Return a context in which `observe` is called for each planner before it plans."""
    plan = EmbeddingShardingPlanner.plan

    def observed_plan(planner: EmbeddingShardingPlanner, *args: Any, **kwargs: Any) -> Any:
        observe(planner, recorder)
        return plan(planner, *args, **kwargs)

    return replaced([(EmbeddingShardingPlanner, "plan", observed_plan)])


def counted(recorder: Recorder) -> AbstractContextManager[None]:
    """Return a context that counts estimates, annotation lookups and copies; this costs time."""
    original, deepcopy = copy.deepcopy, _counted_deepcopy(recorder, copy.deepcopy)
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("torchrec.distributed.planner")
    ]
    rows: list[tuple[Any, str, Any]] = []
    # Modules call `copy.deepcopy`, or have imported this and others by name.
    for module in (copy, *modules):
        for name, value in vars(module).items():
            if value is original:
                rows.append((module, name, deepcopy))
            elif name in _LOOKUPS:
                rows.append((module, name, recorder.counted("annotation_lookups", value)))
            elif name in _ESTIMATORS and value.__module__ == module.__name__:
                rows.append((value, "estimate", _counted_estimates(recorder, value.estimate)))
    return replaced(rows)


def _counted_estimates(recorder: Recorder, estimate: Callable[..., None]) -> Callable[..., None]:

    @wraps(estimate)
    def counted(
        estimator: Any, sharding_options: list[ShardingOption], *args: Any, **kwargs: Any
    ) -> None:
        if recorder.current is not None:
            recorder.counters["estimates"] += sum(len(option.shards) for option in sharding_options)
        estimate(estimator, sharding_options, *args, **kwargs)

    return counted


def _counted_proposals(
    recorder: Recorder, proposer: Any
) -> Callable[[], list[ShardingOption] | None]:
    propose = proposer.propose

    def counted() -> list[ShardingOption] | None:
        proposal: list[ShardingOption] | None = propose()
        if proposal:
            recorder.counters["proposals"] += 1
        return proposal

    return counted


def _counted_deepcopy(recorder: Recorder, deepcopy: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap deepcopy to count outermost calls and copied objects, and copies of plans and devices.

    A copy that the enumerator makes, such as that of the search space, belongs to its own phase.
    """
    copying = False

    def copy_and_count(original: Any, memo: dict[int, Any] | None = None) -> Any:
        nonlocal copying
        if copying or recorder.current is None:
            return deepcopy(original, memo)
        memo = {} if memo is None else memo
        copying = True
        try:
            with recorder.phase(_copy_phase(original, recorder)):
                copied = deepcopy(original, memo)
        finally:
            copying = False
        recorder.counters["deepcopy_calls"] += 1
        # The memo holds every object that was copied, and one list that keeps them alive.
        recorder.counters["objects_copied"] += sum(key != id(memo) for key in memo)
        return copied

    return copy_and_count


def _copy_phase(original: Any, recorder: Recorder) -> str:
    phase = recorder.current or "other"
    if phase == "enumerate" or original is None:
        return phase
    if isinstance(original, list) and original and isinstance(original[0], ShardingOption):
        recorder.counters["plan_copies"] += 1
        return "copy"
    recorder.counters["device_copies"] += 1
    return "copy_devices"
