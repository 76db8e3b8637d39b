"""The enumerator returns torchrec's options and estimates to the bit, with fewer estimates."""

import copy
import math
from collections import Counter
from types import SimpleNamespace

import pytest
from built_problem import problem
from hypothesis import given, reject, settings, strategies as st
from random_models import TYPES, random_model
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator.annotations import fwd_comms
from torchrec.distributed.planner.estimator.estimator import (
    EmbeddingPerfEstimator,
    EmbeddingPerfEstimatorFactory,
)
from torchrec.distributed.planner.estimator.types import HardwarePerfConfig
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    Perf,
    ShardEstimator,
    Storage,
    Topology,
)
from torchrec.distributed.types import CacheParams, KeyValueParams, PipelineType
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.estimation import Diverged, Estimation, Lanes
from planners.embedding.search.options import SharedOption

randoms = st.randoms(use_true_random=False)

KERNELS = ["fused", "fused_uvm", "fused_uvm_caching", "dense", "key_value"]


def enumerated(kind, model, estimators):
    options = kind(model.topology, 512, model.constraints, estimators and estimators())
    return options.enumerate(model.module, model.sharders)


def described(options):
    """Return all attributes of options; `repr` shows types and all bits of floats."""
    return [
        {
            **vars(option),
            "_tensor": None,
            "_module": option.module[0],
            "key": option.storage_hash(),
            "shards": [(repr(shard), repr(shard.perf.total)) for shard in option.shards],
        }
        for option in options
    ]


def assert_torchrecs(model, estimators=None):
    """Assert that our enumerator's options equal torchrec's, and return them."""
    try:
        expected = enumerated(EmbeddingEnumerator, model, estimators)
    except (RuntimeError, ValueError):  # the constraints leave a table without options
        reject()
    options = enumerated(DistinctShardEnumerator, model, estimators)
    assert all(option.shards for option in options)  # makes them
    assert described(options) == described(expected)
    return options


@given(random=randoms)
def test_options_and_estimates_are_torchrecs(random):
    assert_torchrecs(random_model(random))


def _constraint(random, features):
    """Return random constraints of a table; some change its estimates."""
    return ParameterConstraints(
        sharding_types=random.choice([None, [*TYPES], [*TYPES[1:4]], [*TYPES[2:]]]),
        compute_kernels=random.choice([KERNELS, KERNELS[:4]]),
        pooling_factors=[random.choice([0.3, 1.0, 2.5, 17.0]) for _ in range(features)],
        min_partition=random.choice([None, 16, 32]),
        num_poolings=random.choice([None, [2.0] * features]),
        batch_sizes=random.choice([None, None, [64] * features]),
        is_weighted=random.random() < 0.2,
        cache_params=random.choice(
            [None, CacheParams(load_factor=0.3), CacheParams(prefetch_pipeline=True)]
        ),
        output_dtype=random.choice([None, DataType.FP16]),
        key_value_params=random.choice([None, KeyValueParams(max_l1_cache_size=3)]),
        use_virtual_table=random.random() < 0.1,
    )


def _bags(features, random=None):
    """Return a module of tables with `features` features each, of random sizes and types."""

    def one_of(default, *others):
        return random.choice([default, *others]) if random else default

    return EmbeddingBagCollection(
        device="meta",
        is_weighted=bool(random and random.random() < 0.3),
        tables=[
            EmbeddingBagConfig(
                name=name,
                num_embeddings=one_of(4096, 3, 1000, 50_000_000, 10**10 + 7),
                embedding_dim=one_of(64, 4, 16, 128, 256),
                data_type=one_of(DataType.FP32, DataType.FP32, DataType.FP16),
                feature_names=[f"{name}:{index}" for index in range(count)],
            )
            for name, count in features.items()
        ],
    )


@settings(max_examples=25, deadline=None)
@given(random=randoms)
def test_estimates_of_many_tables_at_once_are_torchrecs(random):
    features = {f"table_{number}": random.choice([1, 1, 2, 5]) for number in range(12)}
    kinds = {count: _constraint(random, count) for count in (1, 2, 5)}
    device = random.choice(["cuda", "cuda", "cpu"])
    fused = random.choice([{}, {"cache_load_factor": 0.15}, {"prefetch_pipeline": True}])
    pipeline, peak = random.choice(list(PipelineType)), random.random() < 0.5
    model = SimpleNamespace(
        module=_bags(features, random),
        topology=Topology(
            world_size=8,
            local_world_size=4,
            compute_device=device,
            ssd_cap=random.choice([0, 10**13]),
        ),
        constraints={
            name: _constraint(random, count) if random.random() < 0.3 else kinds[count]
            for name, count in features.items()
        },
        sharders=[EmbeddingBagCollectionSharder(fused)],
    )

    def estimators():
        of_both = {"topology": model.topology, "constraints": model.constraints}
        return [
            EmbeddingPerfEstimator(**of_both),
            EmbeddingStorageEstimator(model.topology, model.constraints, pipeline, peak),
        ]

    assert_torchrecs(model, estimators)


def test_lookups_of_many_features_are_rounded_as_by_this_python():
    whole, rounded = [1.0] * 5, [5.2, 5.8, 2.8, 2.6, 1.1]  # 17.5 since Python 3.12, else more
    lengths = {"first": whole, **dict.fromkeys("abcd", rounded), "last": whole}
    model = SimpleNamespace(
        module=_bags(dict.fromkeys(lengths, 5)),
        topology=Topology(world_size=8, local_world_size=4, compute_device="cuda"),
        constraints={
            name: ParameterConstraints(pooling_factors=factors) for name, factors in lengths.items()
        },
        sharders=[EmbeddingBagCollectionSharder()],
    )
    assert_torchrecs(model)


class _Annotated(HardwarePerfConfig):
    @fwd_comms(sharding_type="row_wise")
    def forward_comms_by_rows(self, ctx):
        return 3.0 + ctx.hash_size


@settings(max_examples=20)
@given(random=randoms)
def test_annotated_configurations_are_used(random):
    model = random_model(random)

    def estimators():
        return [
            EmbeddingPerfEstimatorFactory.create_with_config(
                _Annotated(), topology=model.topology, constraints=model.constraints
            ),
            EmbeddingStorageEstimator(model.topology, model.constraints),
        ]

    for option in assert_torchrecs(model, estimators):
        annotated = all(shard.perf.fwd_comms >= 3.0 for shard in option.shards)
        assert annotated == (option.sharding_type == "row_wise")


def test_lanes_calculate_as_python_does():
    numbers = [3, 10**30 + 1, 0.1, -2.5]
    lanes = Lanes.of(numbers)
    assert list(lanes * 7 / 3 + 0.3) == [number * 7 / 3 + 0.3 for number in numbers]
    assert list(math.ceil(lanes)) == [math.ceil(number) for number in numbers]
    assert list(round(lanes)) == [round(number) for number in numbers]
    doubled = lanes
    doubled *= 2
    assert list(lanes) == numbers
    assert math.isnan(Lanes.of([1.0, math.nan]))
    assert not math.isnan(Lanes.of([1.0, 2.0]))


def test_lanes_that_would_go_different_ways_name_them():
    with pytest.raises(Diverged) as raised:
        max(Lanes.of([1, 50, 2]), 32)
    assert raised.value.true.tolist() == [True, False, True]
    assert list(max(Lanes.of([50, 60]), 32)) == [50, 60]


class _FirstShardIsExpensive(ShardEstimator):
    """An estimator that gives the first shard of an option another cost than the others."""

    def __init__(self, topology=None, constraints=None):
        self.asked = 0

    def estimate(self, sharding_options, sharder_data_map):
        for option in sharding_options:
            for number, shard in enumerate(option.shards):
                self.asked += 1
                shard.perf = Perf(float(number == 0), 0.0, 0.0, 0.0)
                shard.storage = Storage(number, 0)


def test_an_unknown_estimator_is_asked_about_every_shard():
    built = problem("synthetic[tables=4,seed=2]")
    estimator = _FirstShardIsExpensive()
    enumerator = DistinctShardEnumerator(built.topology, 512, built.constraints, estimator)
    options = enumerator.enumerate(built.module, built.sharders)
    assert estimator.asked == sum(len(option.shards) for option in options)
    assert {shard.storage.hbm for option in options for shard in option.shards} == set(range(16))


def test_each_size_of_shard_is_asked_for_once_at_most_and_those_of_many_tables_at_once(monkeypatch):
    built = problem("synthetic[tables=40,seed=2]")
    asked = Counter()
    for estimator_type in (EmbeddingPerfEstimator, EmbeddingStorageEstimator):

        def estimate(self, options, sharder_data_map, estimate=estimator_type.estimate):
            asked[type(self)] += sum(len(option.shards) for option in options)
            estimate(self, options, sharder_data_map=sharder_data_map)

        monkeypatch.setattr(estimator_type, "estimate", estimate)
    options = built.enumerator(DistinctShardEnumerator).enumerate(built.module, built.sharders)
    sizes = sum(len({tuple(shard.size) for shard in option.shards}) for option in options)
    assert sizes < sum(len(option.shards) for option in options) / 3
    assert set(asked) == {EmbeddingPerfEstimator, EmbeddingStorageEstimator}
    assert max(asked.values()) < sizes / 2


def test_copies_have_ranks_of_their_own_and_share_all_the_rest():
    built = problem("synthetic[tables=1,seed=2]")
    option = built.enumerator(DistinctShardEnumerator).enumerate(built.module, built.sharders)[0]
    assert type(option) is SharedOption
    copied = copy.deepcopy(option)
    copied.shards[0].rank = 3
    assert option.shards[0].rank is None
    assert copied.shards[0].storage is option.shards[0].storage
    assert copied.tensor is option.tensor


def test_the_stored_search_space_is_returned_as_copies():
    built = problem("synthetic[tables=1,seed=2]")
    enumerator = built.enumerator(DistinctShardEnumerator)
    first = enumerator.enumerate(built.module, built.sharders)
    assert [*map(hash, enumerator.last_stored_search_space)] == [*map(hash, first)]
    for option in enumerator.enumerate(built.module, built.sharders):
        option.shards[0].rank = 0
    assert all(option.shards[0].rank is None for option in enumerator.last_stored_search_space)


@pytest.mark.parametrize("broken", [(Estimation, "_in_lanes"), (Lanes, "__ceil__")])
def test_a_failure_of_our_estimation_is_warned_of_and_leaves_torchrecs(broken, monkeypatch):
    """The estimates are torchrec's, and the error is named, since it is ours alone."""
    model = problem("synthetic[tables=20,seed=2]")
    expected = described(enumerated(EmbeddingEnumerator, model, None))
    monkeypatch.setattr(*broken, lambda *_: [][0])
    with pytest.warns(RuntimeWarning, match="ours failed with IndexError: list index"):
        options = enumerated(DistinctShardEnumerator, model, None)
    assert all(option.shards for option in options)
    assert described(options) == expected
