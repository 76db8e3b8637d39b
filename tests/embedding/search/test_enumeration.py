"""The enumerator returns torchrec's options and estimates to the bit, with fewer estimates."""

from collections import Counter

import pytest
from built_problem import problem
from hypothesis import given, reject, settings, strategies as st
from random_models import random_model
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator.annotations import fwd_comms
from torchrec.distributed.planner.estimator.estimator import (
    EmbeddingPerfEstimator,
    EmbeddingPerfEstimatorFactory,
)
from torchrec.distributed.planner.estimator.types import HardwarePerfConfig
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import (
    Perf,
    ShardEstimator,
    Storage,
)
from torchrec.distributed.types import PipelineType

from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.estimation import Estimation, Lanes

randoms = st.randoms(use_true_random=False)


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


def _at_peak(model):
    of_both = {"topology": model.topology, "constraints": model.constraints}
    kinds = {"pipeline_type": PipelineType.TRAIN_SPARSE_DIST, "run_embedding_at_peak_memory": True}
    return [EmbeddingPerfEstimator(**of_both), EmbeddingStorageEstimator(**of_both, **kinds)]


@pytest.mark.parametrize("estimators", [lambda model: None, _at_peak, _annotated, _NumbersShards])
@settings(max_examples=30)
@given(random=randoms)
def test_options_and_estimates_are_torchrecs(estimators, random):
    """Models have several modules, also towers and sequences; estimators may be the user's own."""
    model = random_model(random, most_tables=random.choice([4, 12]))
    assert_torchrecs(model, lambda: estimators(model))


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
