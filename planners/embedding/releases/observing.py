"""Counts and times the steps of an EmbeddingShardingPlanner of any release, from outside.

What a release does not have is left out: 1.5.0 has no annotations, and each release imports its
deepcopy in another way.
"""

import copy
import importlib.util
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

from torchrec.distributed import planner as planner_package
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import ShardingOption

from harness.contract import Recorder

# What a release imports of its annotations by name is looked up under the same name.
_LOOKUPS = ("_get_annotated_method", "_get_coefficient_method")


@contextmanager
def phases(recorder: Recorder) -> Iterator[None]:
    """Record the phases of every plan made inside, with a few wrapped calls for each proposal."""
    plan = EmbeddingShardingPlanner.plan

    def observed_plan(planner: EmbeddingShardingPlanner, *args: Any, **kwargs: Any) -> Any:
        def replace(component: Any, method: str, phase: str, counter: str = "") -> None:
            setattr(component, method, recorder.timed(phase, getattr(component, method), counter))

        replace(planner._enumerator, "enumerate", "enumerate")
        replace(planner._perf_model, "rate", "rate")
        replace(planner._partitioner, "partition", "partition", "partitions")
        for proposer in planner._proposers:
            replace(proposer, "load", "propose")
            replace(proposer, "feedback", "propose")
            proposer.propose = recorder.timed("propose", counted_proposals(recorder, proposer))
        return plan(planner, *args, **kwargs)

    with mock.patch.object(EmbeddingShardingPlanner, "plan", observed_plan):
        yield


@contextmanager
def counted(recorder: Recorder) -> Iterator[None]:
    """Record counters too, which slows planning down."""
    deepcopy = counted_deepcopy(recorder, copy.deepcopy)
    with ExitStack() as patches:

        def replace(owner: Any, name: str, by: Callable[..., Any]) -> None:
            patches.enter_context(mock.patch.object(owner, name, by))

        for module in _modules():
            # Some call `copy.deepcopy`, others have imported it by name.
            for name in [name for name, value in vars(module).items() if value is copy.deepcopy]:
                replace(module, name, deepcopy)
            for name in set(_LOOKUPS) & set(vars(module)):
                looked = recorder.counted("annotation_lookups", getattr(module, name))
                replace(module, name, looked)
        replace(EmbeddingShardingPlanner, "plan", _with_counted_estimates(recorder))
        replace(copy, "deepcopy", deepcopy)
        yield


def _modules() -> list[ModuleType]:
    """Return the modules of torchrec's planner, all imported."""
    found = [importlib.import_module(planner_package.__name__)]
    for path in ("", ".estimator"):
        package = importlib.util.find_spec(f"{planner_package.__name__}{path}")
        if package is None:
            continue
        for each in pkgutil.iter_modules(
            package.submodule_search_locations, f"{planner_package.__name__}{path}."
        ):
            if not each.ispkg:
                found.append(importlib.import_module(each.name))
    return found


def _with_counted_estimates(recorder: Recorder) -> Callable[..., Any]:
    """Return `plan`, which counts the shards that the planner's perf estimators are asked for."""
    plan = EmbeddingShardingPlanner.plan

    def counting(estimate: Callable[..., None]) -> Callable[..., None]:
        def counted(options: list[ShardingOption], *args: Any, **kwargs: Any) -> None:
            recorder.counters["estimates"] += sum(len(each.shards) for each in options)
            estimate(options, *args, **kwargs)

        return counted

    def counted_plan(planner: EmbeddingShardingPlanner, *args: Any, **kwargs: Any) -> Any:
        for estimator in planner._enumerator._estimators:
            if not isinstance(estimator, EmbeddingStorageEstimator):
                estimator.estimate = counting(estimator.estimate)
        return plan(planner, *args, **kwargs)

    return counted_plan


def counted_proposals(
    recorder: Recorder, proposer: Any
) -> Callable[[], list[ShardingOption] | None]:
    """Return a proposer's `propose`, which counts what is put forward."""
    propose = proposer.propose

    def counted() -> list[ShardingOption] | None:
        proposal: list[ShardingOption] | None = propose()
        if proposal:
            recorder.counters["proposals"] += 1
        return proposal

    return counted


def counted_deepcopy(recorder: Recorder, deepcopy: Callable[..., Any]) -> Callable[..., Any]:
    """Return a deepcopy that counts outermost copies and their objects, and tells plans apart.

    The search space that the enumerator stores is part of its own phase.
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
