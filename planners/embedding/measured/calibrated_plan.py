"""The best plan by the estimate of a calibrated machine."""

from functools import partial
from typing import Any

from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import Shard, ShardingOption

from harness.contract import Prepared
from planners.embedding.calibration.coefficients import Calibration
from planners.embedding.calibration.estimator import calibrated_estimators
from planners.embedding.decision import Plan, prepare
from planners.embedding.drop_in.planner import Planner
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.unmade_shards import with_shards


def calibrated_plan(problem: EmbeddingProblem, calibration: Calibration) -> Prepared[Plan]:
    """Prepare the search for the best plan by a calibration's estimate.

    What it returns has TorchRec's own estimates, so that it is rated as other plans are.
    """

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
        return Plan(tuple(_by_torchrec(problem, found.options)))

    return Prepared(run=plan)


def _by_torchrec(
    problem: EmbeddingProblem, options: tuple[ShardingOption, ...]
) -> list[ShardingOption]:
    """Return the options of a plan with TorchRec's estimates of the same shards."""
    made = problem.enumerator(DistinctShardEnumerator)
    known = {_said(each): each for each in made.enumerate(problem.module, problem.sharders)}
    found = []
    for option in options:
        like = known[_said(option)]
        shards = [
            Shard(mine.size, mine.offset, theirs.storage, theirs.perf, mine.rank)
            for mine, theirs in zip(option.shards, like.shards, strict=True)
        ]
        found.append(with_shards(option, shards))
    return found


def _said(option: ShardingOption) -> tuple[str, str, str]:
    return option.fqn, option.sharding_type, option.compute_kernel
