"""Counters and times of the steps of any EmbeddingShardingPlanner, taken from outside."""

import copy
from collections.abc import Iterator
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
    plan, estimate = EmbeddingShardingPlanner.plan, EmbeddingPerfEstimator.estimate

    def observed_plan(planner: EmbeddingShardingPlanner, *args: Any, **kwargs: Any) -> Any:
        _observe_components(planner, recorder)
        return plan(planner, *args, **kwargs)

    def counted_estimate(
        estimator: EmbeddingPerfEstimator,
        sharding_options: list[ShardingOption],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if recorder.current is not None:
            recorder.counters["estimates"] += sum(len(each.shards) for each in sharding_options)
        estimate(estimator, sharding_options, *args, **kwargs)

    lookups: dict[str, Any] = {
        name: recorder.counted("annotation_lookups", getattr(annotations, name))
        for name in ("_get_annotated_method", "_get_coefficient_method")
    }
    with (
        mock.patch.object(EmbeddingShardingPlanner, "plan", observed_plan),
        mock.patch.object(copy, "deepcopy", counted_deepcopy(recorder, copy.deepcopy)),
        mock.patch.multiple(annotations, **lookups),
        mock.patch.object(EmbeddingPerfEstimator, "estimate", counted_estimate),
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
        load = compiled.load

        def counted_load(*args: Any, **kwargs: Any) -> None:
            load(*args, **kwargs)
            recorder.counters["proposals"] += compiled.proposed
            recorder.counters["partitions"] += compiled.tried

        compiled.load = recorder.timed("propose", counted_load)  # type: ignore[method-assign]
        recorder.progress = lambda: _progress_of(compiled.proposed, None)
        return
    replace(planner._partitioner, "partition", "partition", "partitions")
    for proposer in planner._proposers:
        replace(proposer, "load", "propose")
        replace(proposer, "feedback", "propose")
        proposer.propose = recorder.timed("propose", counted_proposals(recorder, proposer))

    def progress() -> Progress | None:
        expected = [_expected_proposals(proposer) for proposer in planner._proposers]
        total = None if None in expected else sum(count or 0 for count in expected)
        return _progress_of(recorder.counters["proposals"], total)

    recorder.progress = progress


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
