"""Counts and times the steps of any EmbeddingShardingPlanner, from outside."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from torchrec.distributed.planner.estimator import annotations
from torchrec.distributed.planner.estimator.estimator import EmbeddingPerfEstimator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.types import Proposer, ShardingOption

from harness.contract import Progress, Recorder
from planners.embedding.drop_in.compiled_search import CompiledSearch
from planners.embedding.releases.observing import counted_deepcopy, counted_proposals


@contextmanager
def observe(recorder: Recorder) -> Iterator[None]:
    """Record phases, counters and progress of every plan made inside."""
    plan = EmbeddingShardingPlanner.plan

    def observed_plan(planner: EmbeddingShardingPlanner, *args: Any, **kwargs: Any) -> Any:
        _observe_components(planner, recorder)
        return plan(planner, *args, **kwargs)

    with (
        mock.patch.object(EmbeddingShardingPlanner, "plan", observed_plan),
        mock.patch.object(copy, "deepcopy", counted_deepcopy(recorder, copy.deepcopy)),
        mock.patch.object(
            annotations,
            "_get_annotated_method",
            recorder.counted("annotation_lookups", annotations._get_annotated_method),
        ),
        mock.patch.object(
            annotations,
            "_get_coefficient_method",
            recorder.counted("annotation_lookups", annotations._get_coefficient_method),
        ),
        mock.patch.object(
            EmbeddingPerfEstimator,
            "estimate",
            _counted_estimates(recorder, EmbeddingPerfEstimator.estimate),
        ),
    ):
        yield


def _observe_components(planner: EmbeddingShardingPlanner, recorder: Recorder) -> None:
    def replace(component: Any, method: str, phase: str, counter: str = "") -> None:
        setattr(component, method, recorder.timed(phase, getattr(component, method), counter))

    replace(planner._enumerator, "enumerate", "enumerate")
    replace(planner._perf_model, "rate", "rate")
    compiled = planner._partitioner
    if isinstance(compiled, CompiledSearch):
        replace(compiled, "flatten", "arrays")
        replace(compiled, "search", "search")
        search = _counted_search(recorder, compiled)
        compiled.load = recorder.timed("propose", search)  # type: ignore[method-assign]
        recorder.progress = lambda: _progress_of(compiled.proposed, None)
        return
    replace(planner._partitioner, "partition", "partition", "partitions")
    for proposer in planner._proposers:
        replace(proposer, "load", "propose")
        replace(proposer, "feedback", "propose")
        proposer.propose = recorder.timed("propose", counted_proposals(recorder, proposer))
    recorder.progress = lambda: _progress(recorder, planner._proposers)


def _counted_search(recorder: Recorder, compiled: CompiledSearch) -> Callable[..., None]:
    load = compiled.load

    def counted(*args: Any, **kwargs: Any) -> None:
        load(*args, **kwargs)
        recorder.counters["proposals"] += compiled.proposed
        recorder.counters["partitions"] += compiled.tried

    return counted


def _counted_estimates(recorder: Recorder, estimate: Callable[..., None]) -> Callable[..., None]:
    def counted(
        estimator: EmbeddingPerfEstimator,
        sharding_options: list[ShardingOption],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if recorder.current is not None:
            recorder.counters["estimates"] += sum(len(each.shards) for each in sharding_options)
        estimate(estimator, sharding_options, *args, **kwargs)

    return counted


def _progress(recorder: Recorder, proposers: list[Proposer]) -> Progress | None:
    expected = [_expected_proposals(proposer) for proposer in proposers]
    total = None if None in expected else sum(count for count in expected if count is not None)
    return _progress_of(recorder.counters["proposals"], total)


def _progress_of(done: int, total: int | None) -> Progress | None:
    return Progress(done, total, "proposals") if done else None


def _expected_proposals(proposer: Proposer) -> int | None:
    """Return how many proposals a loaded proposer will make, or None where that is not known."""
    if isinstance(proposer, GreedyProposer):
        return 1 + sum(len(each) - 1 for each in proposer._sharding_options_by_fqn.values())
    if isinstance(proposer, UniformProposer):
        return len(proposer._grouped_sharding_options)
    if isinstance(proposer, GridSearchProposer):
        return len(proposer._proposals)
    if isinstance(proposer, DynamicProgrammingProposer) and proposer._inited:
        return 1 + len(proposer._proposal_list)
    return None
