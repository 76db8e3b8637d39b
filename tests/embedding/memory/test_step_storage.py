"""The storage estimator of a whole step, in TorchRec's enumerator and in ours."""

import built_problem
import pytest
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.types import ShardEstimator, ShardingOption

from planners.embedding.memory.candidates import torchrec_terms
from planners.embedding.memory.estimator import StepStorageEstimator
from planners.embedding.memory.shard_bytes import OF_RANK, PEAK
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.search.enumeration import DistinctShardEnumerator

PROBLEM = built_problem.problem("synthetic[tables=4,seed=3,memory=roomy]", gpus=16)


def options(
    problem: EmbeddingProblem, kind: type[ShardEstimator], enumerator: type[EmbeddingEnumerator]
) -> dict[tuple[str, str, str], ShardingOption]:
    estimators = [
        estimator(topology=problem.topology, constraints=problem.constraints)
        for estimator in (EmbeddingPerfEstimator, kind)
    ]
    made = problem.enumerator(enumerator, estimators).enumerate(problem.module, problem.sharders)
    return {(option.fqn, option.sharding_type, option.compute_kernel): option for option in made}


@pytest.mark.parametrize("enumerator", [EmbeddingEnumerator, DistinctShardEnumerator])
def test_it_is_torchrecs_estimate_or_more(enumerator: type[EmbeddingEnumerator]) -> None:
    plain = options(PROBLEM, EmbeddingStorageEstimator, EmbeddingEnumerator)
    whole = options(PROBLEM, StepStorageEstimator, enumerator)
    more = set()
    for key, option in plain.items():
        for shard, raised in zip(option.shards, whole[key].shards, strict=True):
            assert raised.storage.ddr == shard.storage.ddr
            assert raised.storage.hbm >= shard.storage.hbm
            if raised.storage.hbm > shard.storage.hbm:
                more.add(key[1:])
    assert {kernel for _, kernel in more} == {"fused"}
    assert {kind for kind, _ in more} == {kind for _, kind, kernel in plain if kernel == "fused"}


def test_torchrecs_terms_add_up_to_its_estimate() -> None:
    plain = options(PROBLEM, EmbeddingStorageEstimator, EmbeddingEnumerator)
    plan = [option for (_, kind, kernel), option in plain.items() if kernel.startswith("fused")]
    for number, option in enumerate(plan):
        for shard in option.shards:
            shard.rank = number % 16
    found = sum(terms[OF_RANK][PEAK] for terms in torchrec_terms(PROBLEM, plan, "sgd"))
    storages = [shard.storage for option in plan for shard in option.shards]
    assert found == sum(storage.hbm + storage.ddr for storage in storages)
