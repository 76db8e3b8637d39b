"""Searches for the best plan by the estimates of a calibrated machine."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import Shard, ShardingOption

from harness.contract import Prepared
from planners.embedding.decision import Plan, prepare
from planners.embedding.drop_in.planner import Planner
from planners.embedding.estimates.calibration import Calibration
from planners.embedding.estimates.estimator import calibrated_estimators
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.unmade_shards import with_shards


def calibrated_plan(problem: EmbeddingProblem) -> Prepared[Plan]:
    """Prepare the search for the best plan by the problem's calibrated coefficients.

    The returned plan has TorchRec's own estimates, so that it is rated like other plans.
    """
    calibration = Calibration(problem.coefficients)

    def enumerator() -> EmbeddingEnumerator:
        estimators = calibrated_estimators(calibration, problem.topology, problem.constraints)
        return problem.enumerator(DistinctShardEnumerator, estimators)

    prepared = prepare(
        problem,
        partial(Planner, mode="best-plan", search_seconds=problem.search_seconds),
        enumerator=enumerator,
    )

    def plan() -> Plan:
        found: Any = prepared.run()
        return Plan(tuple(_with_torchrecs_estimates(problem, found.options)))

    return Prepared(run=plan)


def _with_torchrecs_estimates(
    problem: EmbeddingProblem, options: Iterable[ShardingOption]
) -> list[ShardingOption]:
    enumerator = problem.enumerator(DistinctShardEnumerator)
    known = {
        (option.fqn, option.sharding_type, option.compute_kernel): option.shards
        for option in enumerator.enumerate(problem.module, problem.sharders)
    }
    found = []
    for option in options:
        shards = known[option.fqn, option.sharding_type, option.compute_kernel]
        estimated = [
            Shard(shard.size, shard.offset, like.storage, like.perf, shard.rank)
            for shard, like in zip(option.shards, shards, strict=True)
        ]
        found.append(with_shards(option, estimated))
    return found
