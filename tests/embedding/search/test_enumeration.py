"""The enumerator returns torchrec's options and estimates to the bit, with fewer estimates."""

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
from planners.embedding.search.estimation import Estimation, Lanes

randoms = st.randoms(use_true_random=False)

KERNELS = ["fused", "fused_uvm", "fused_uvm_caching", "dense", "key_value"]


def enumerated(kind, model, estimators=lambda: None):
    enumerator = kind(model.topology, 512, model.constraints, estimators())
    return enumerator.enumerate(model.module, model.sharders)


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


def assert_torchrecs(model, estimators=lambda: None):
    """Assert that our enumerator's options equal torchrec's."""
    try:
        expected = enumerated(EmbeddingEnumerator, model, estimators)
    except (RuntimeError, ValueError):  # the constraints leave a table without options
        reject()
    options = enumerated(DistinctShardEnumerator, model, estimators)
    assert all(option.shards for option in options)  # makes them
    assert described(options) == described(expected)


class _Annotated(HardwarePerfConfig):
    """A user's configuration, with an estimate of its own for one sharding type."""

    @fwd_comms(sharding_type="row_wise")
    def forward_comms_by_rows(self, ctx):
        return 3.0 + ctx.hash_size


def _annotated(model):
    of_both = {"topology": model.topology, "constraints": model.constraints}
    perf = EmbeddingPerfEstimatorFactory.create_with_config(_Annotated(), **of_both)
    return [perf, EmbeddingStorageEstimator(**of_both)]


class _NumbersShards(ShardEstimator):
    """A user's estimator, by which equal shards of an option differ."""

    def __init__(self, topology=None, constraints=None):
        pass

    def estimate(self, sharding_options, sharder_data_map):
        for option in sharding_options:
            for number, shard in enumerate(option.shards):
                shard.perf, shard.storage = Perf(1.0, 0.0, 0.0, 0.0), Storage(number, 0)


@pytest.mark.parametrize("estimators", [lambda model: None, _annotated, _NumbersShards])
@settings(max_examples=30)
@given(random=randoms)
def test_options_and_estimates_are_torchrecs(estimators, random):
    """Models have several modules, also towers and sequences; estimators may be the user's own."""
    model = random_model(random)
    assert_torchrecs(model, lambda: estimators(model))


# Five of the last five come to 17.5 since Python 3.12, and to more before.
POOLING_FACTORS = (0.3, 1.0, 2.5, 17.0, 5.2, 5.8, 2.8, 2.6, 1.1)


def _constraint(random, features):
    """Return random constraints of a table; some change its estimates."""
    return ParameterConstraints(
        sharding_types=random.choice([None, [*TYPES], [*TYPES[1:4]], [*TYPES[2:]]]),
        compute_kernels=random.choice([KERNELS, KERNELS[:4]]),
        pooling_factors=random.choices(POOLING_FACTORS, k=features),
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


@settings(max_examples=12, deadline=None)
@given(random=randoms)
def test_estimates_of_many_tables_at_once_are_torchrecs(random):
    """Tables differ in size, type, features and constraints; estimators in their settings."""
    features = {f"table_{number}": random.choice([1, 1, 2, 5]) for number in range(12)}
    kinds = {count: _constraint(random, count) for count in (1, 2, 5)}
    constraints = {
        name: _constraint(random, count) if random.random() < 0.3 else kinds[count]
        for name, count in features.items()
    }
    module = EmbeddingBagCollection(
        device="meta",
        is_weighted=random.random() < 0.3,
        tables=[
            EmbeddingBagConfig(
                name=name,
                num_embeddings=random.choice([4096, 3, 1000, 50_000_000, 10**10 + 7]),
                embedding_dim=random.choice([64, 4, 16, 128, 256]),
                data_type=random.choice([DataType.FP32, DataType.FP32, DataType.FP16]),
                feature_names=[f"{name}:{index}" for index in range(count)],
            )
            for name, count in features.items()
        ],
    )
    topology = Topology(
        world_size=8,
        local_world_size=4,
        compute_device=random.choice(["cuda", "cuda", "cpu"]),
        ssd_cap=random.choice([0, 10**13]),
    )
    fused = random.choice([{}, {"cache_load_factor": 0.15}, {"prefetch_pipeline": True}])
    pipeline, peak = random.choice(list(PipelineType)), random.random() < 0.5

    def estimators():
        return [
            EmbeddingPerfEstimator(topology=topology, constraints=constraints),
            EmbeddingStorageEstimator(topology, constraints, pipeline, peak),
        ]

    model = SimpleNamespace(
        module=module,
        topology=topology,
        constraints=constraints,
        sharders=[EmbeddingBagCollectionSharder(fused)],
    )
    assert_torchrecs(model, estimators)


def test_each_size_of_shard_is_asked_for_once_at_most_and_those_of_many_tables_at_once(monkeypatch):
    """Equal shards share their estimates."""
    built, asked = problem("synthetic[tables=40,seed=2]"), Counter()
    for estimator_type in (EmbeddingPerfEstimator, EmbeddingStorageEstimator):

        def estimate(self, options, sharder_data_map, estimate=estimator_type.estimate):
            asked[type(self)] += sum(len(option.shards) for option in options)
            estimate(self, options, sharder_data_map=sharder_data_map)

        monkeypatch.setattr(estimator_type, "estimate", estimate)
    options = enumerated(DistinctShardEnumerator, built)
    sizes = sum(len({tuple(shard.size) for shard in option.shards}) for option in options)
    assert sizes < sum(len(option.shards) for option in options) / 3
    assert 0 < min(asked.values()) <= max(asked.values()) < sizes / 2


@pytest.mark.parametrize("broken", [(Estimation, "_in_lanes"), (Lanes, "__ceil__")])
def test_a_failure_of_our_estimation_is_warned_of_and_leaves_torchrecs(broken, monkeypatch):
    """The error is named, since it is ours alone."""
    model = problem("synthetic[tables=20,seed=2]")
    monkeypatch.setattr(*broken, lambda *_: [][0])
    with pytest.warns(RuntimeWarning, match="ours failed with IndexError: list index"):
        assert_torchrecs(model)
