"""Estimates of many shards at once are those of torchrec's estimators for each, to the bit."""

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.constants import DEFAULT_PERF_ESTIMATOR
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator.estimator import EmbeddingPerfEstimatorFactory
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.distributed.types import CacheParams, KeyValueParams, PipelineType
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.lanes import Diverged, Lanes

randoms = st.randoms(use_true_random=False)

KERNELS = ["fused", "fused_uvm", "fused_uvm_caching", "dense", "key_value"]
TYPES = ["table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise"]
TYPES += ["data_parallel", "grid_shard"]


def _constraint(random, features):
    """Return constraints of which some change the estimates of a table."""
    per_feature = [random.choice([0.3, 1.0, 2.5, 17.0]) for _ in range(features)]
    return ParameterConstraints(
        sharding_types=random.choice([None, TYPES, TYPES[:3], TYPES[2:]]),
        compute_kernels=random.choice([KERNELS, KERNELS[:4]]),
        pooling_factors=per_feature,
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


def _estimators(topology, constraints, *of_storage):
    return [
        EmbeddingPerfEstimatorFactory.create(
            DEFAULT_PERF_ESTIMATOR, topology=topology, constraints=constraints
        ),
        EmbeddingStorageEstimator(topology, constraints, *of_storage),
    ]


def random_problem(random):
    """Return a module of many tables, a topology, constraints, sharders and new estimators."""
    features = {f"table_{number}": random.choice([1, 1, 2, 5]) for number in range(12)}
    module = EmbeddingBagCollection(
        device="meta",
        is_weighted=random.random() < 0.3,
        tables=[
            EmbeddingBagConfig(
                name=name,
                num_embeddings=random.choice([3, 1000, 4097, 50_000_000, 10**10 + 7]),
                embedding_dim=random.choice([4, 16, 64, 128, 256]),
                data_type=random.choice([DataType.FP32, DataType.FP32, DataType.FP16]),
                feature_names=[f"{name}:{index}" for index in range(count)],
            )
            for name, count in features.items()
        ],
    )
    device = random.choice(["cuda", "cuda", "cpu"])
    topology = Topology(
        world_size=8, local_world_size=4, compute_device=device, ssd_cap=random.choice([0, 10**13])
    )
    kinds = {count: _constraint(random, count) for count in (1, 2, 5)}
    constraints = {
        name: _constraint(random, count) if random.random() < 0.3 else kinds[count]
        for name, count in features.items()
    }
    fused = random.choice([{}, {"cache_load_factor": 0.15}, {"prefetch_pipeline": True}])
    pipeline, peak = random.choice(list(PipelineType)), random.random() < 0.5

    def estimators():
        return _estimators(topology, constraints, pipeline, peak)

    return module, topology, constraints, [EmbeddingBagCollectionSharder(fused)], estimators


def estimated(kind, problem):
    """Return every shard with its estimates, or the error's text."""
    module, topology, constraints, sharders, estimators = problem
    try:
        options = kind(topology, 512, constraints, estimators()).enumerate(module, sharders)
    except (RuntimeError, ValueError) as error:
        return str(error)
    return [
        (
            option.name,
            option.sharding_type,
            option.compute_kernel,
            option.is_weighted,
            [
                (s.size, s.offset, repr(s.storage), repr(s.perf), repr(s.perf.total))
                for s in option.shards
            ],
        )
        for option in options
    ]


def test_lookups_of_many_features_are_rounded_as_by_this_python():
    whole, rounded = [1.0] * 5, [5.2, 5.8, 2.8, 2.6, 1.1]  # 17.5 since Python 3.12, else more
    lengths = {"first": whole, **dict.fromkeys("abcd", rounded), "last": whole}
    module = EmbeddingBagCollection(
        device="meta",
        tables=[
            EmbeddingBagConfig(
                name=name,
                num_embeddings=4096,
                embedding_dim=64,
                feature_names=[f"{name}:{index}" for index in range(5)],
            )
            for name in lengths
        ],
    )
    constraints = {name: ParameterConstraints(pooling_factors=lengths[name]) for name in lengths}
    topology = Topology(world_size=8, local_world_size=4, compute_device="cuda")

    def estimators():
        return _estimators(topology, constraints)

    problem = module, topology, constraints, [EmbeddingBagCollectionSharder()], estimators
    assert estimated(DistinctShardEnumerator, problem) == estimated(EmbeddingEnumerator, problem)


@settings(max_examples=25, deadline=None)
@given(random=randoms)
def test_every_shard_has_torchrecs_estimates_to_the_bit(random):
    problem = random_problem(random)
    expected = estimated(EmbeddingEnumerator, problem)
    assume(not isinstance(expected, str))  # the constraints leave a table without options
    assert estimated(DistinctShardEnumerator, problem) == expected


def test_lanes_come_to_what_python_comes_to():
    numbers = [3, 10**30 + 1, 0.1, -2.5]
    lanes = Lanes.of(numbers)
    assert list(lanes * 7 / 3 + 0.3) == [number * 7 / 3 + 0.3 for number in numbers]
    assert list(math.ceil(lanes)) == [math.ceil(number) for number in numbers]
    assert list(round(lanes)) == [round(number) for number in numbers]
    doubled = lanes
    doubled *= 2
    assert list(lanes) == numbers


def test_lanes_that_would_go_different_ways_say_which():
    with pytest.raises(Diverged) as raised:
        max(Lanes.of([1, 50, 2]), 32)
    assert raised.value.true.tolist() == [True, False, True]
    assert list(max(Lanes.of([50, 60]), 32)) == [50, 60]


def test_whether_a_lane_is_no_number_is_known():
    assert math.isnan(Lanes.of([1.0, math.nan]))
    assert not math.isnan(Lanes.of([1.0, 2.0]))
