"""The enumerator gives torchrec's options and estimates, and asks for each distinct shard once."""

import copy
from collections import Counter

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_models import Model, random_model
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator.annotations import fwd_comms
from torchrec.distributed.planner.estimator.estimator import (
    EmbeddingPerfEstimator,
    EmbeddingPerfEstimatorFactory,
)
from torchrec.distributed.planner.estimator.types import HardwarePerfConfig
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import Perf, ShardEstimator, Storage

from harness.contract import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding.problem import build
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.unmade_shards import SharedOption

randoms = st.randoms(use_true_random=False)


def enumerated(enumerator_type, model: Model, estimators=None):
    enumerator = enumerator_type(model.topology, 512, model.constraints, estimators)
    options = enumerator.enumerate(model.module, model.sharders)
    assert all(option.shards for option in options)  # which are made when they are looked at
    return [
        {**vars(option), "_tensor": None, "_module": option.module[0], "key": option.storage_hash()}
        for option in options
    ]


def synthetic(tables: int = 4, gpus: int = 16):
    return build(
        WorkloadSpec.parse(f"synthetic[tables={tables},seed=2]"),
        find_topology("dgx_a100_80gb", gpus),
    )


@given(random=randoms)
def test_options_and_estimates_are_torchrecs(random):
    model = random_model(random)
    try:
        expected = enumerated(EmbeddingEnumerator, model)
    except RuntimeError:  # the constraints leave a table without options
        assume(False)
    assert enumerated(DistinctShardEnumerator, model) == expected


class _Annotated(HardwarePerfConfig):
    @fwd_comms(sharding_type="row_wise")
    def forward_comms_by_rows(self, ctx):
        return 3.0 + ctx.hash_size


@settings(max_examples=20)
@given(random=randoms)
def test_annotated_configurations_are_heard(random):
    model = random_model(random)

    def estimators():
        return [
            EmbeddingPerfEstimatorFactory.create_with_config(
                _Annotated(), topology=model.topology, constraints=model.constraints
            ),
            EmbeddingStorageEstimator(model.topology, model.constraints),
        ]

    try:
        expected = enumerated(EmbeddingEnumerator, model, estimators())
    except RuntimeError:
        assume(False)
    assert enumerated(DistinctShardEnumerator, model, estimators()) == expected
    for option in expected:
        annotated = all(shard.perf.fwd_comms >= 3.0 for shard in option["shards"])
        assert annotated == (option["sharding_type"] == "row_wise")


class _FirstShardIsDear(ShardEstimator):
    """An estimator that looks across the shards of an option."""

    def __init__(self, topology=None, constraints=None):
        self.asked = 0

    def estimate(self, sharding_options, sharder_data_map):
        for option in sharding_options:
            for number, shard in enumerate(option.shards):
                self.asked += 1
                shard.perf = Perf(float(number == 0), 0.0, 0.0, 0.0)
                shard.storage = Storage(number, 0)


def test_an_unknown_estimator_is_asked_about_every_shard():
    built = synthetic()
    estimator = _FirstShardIsDear()
    enumerator = DistinctShardEnumerator(built.topology, 512, built.constraints, estimator)
    options = enumerator.enumerate(built.module, built.sharders)
    assert estimator.asked == sum(len(option.shards) for option in options)
    assert {shard.storage.hbm for option in options for shard in option.shards} == set(range(16))


def test_each_size_of_shard_is_asked_for_once_at_most_and_those_of_many_tables_at_once(monkeypatch):
    built = synthetic(tables=40)
    asked = Counter()
    for estimator_type in (EmbeddingPerfEstimator, EmbeddingStorageEstimator):

        def estimate(self, options, sharder_data_map, estimate=estimator_type.estimate):
            asked[type(self)] += sum(len(option.shards) for option in options)
            estimate(self, options, sharder_data_map=sharder_data_map)

        monkeypatch.setattr(estimator_type, "estimate", estimate)
    enumerator = DistinctShardEnumerator(built.topology, 512, built.constraints)
    options = enumerator.enumerate(built.module, built.sharders)
    sizes = sum(len({tuple(shard.size) for shard in option.shards}) for option in options)
    assert sizes < sum(len(option.shards) for option in options) / 3
    assert set(asked) == {EmbeddingPerfEstimator, EmbeddingStorageEstimator}
    assert max(asked.values()) < sizes / 2


def test_copies_have_ranks_of_their_own_and_share_what_does_not_change():
    built = synthetic(tables=1)
    enumerator = DistinctShardEnumerator(built.topology, 512, built.constraints)
    option = enumerator.enumerate(built.module, built.sharders)[0]
    assert type(option) is SharedOption
    copied = copy.deepcopy(option)
    copied.shards[0].rank = 3
    assert option.shards[0].rank is None
    assert copied.shards[0].storage is option.shards[0].storage
    assert copied.tensor is option.tensor


def test_the_stored_search_space_is_given_out_as_copies():
    built = synthetic(tables=1)
    enumerator = DistinctShardEnumerator(built.topology, 512, built.constraints)
    first = enumerator.enumerate(built.module, built.sharders)
    stored = enumerator.last_stored_search_space
    assert [hash(option) for option in stored] == [hash(option) for option in first]
    again = enumerator.enumerate(built.module, built.sharders)
    for option in again:
        option.shards[0].rank = 0
    assert all(option.shards[0].rank is None for option in enumerator.last_stored_search_space)
