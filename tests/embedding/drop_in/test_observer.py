"""The observer counts the steps of our planner like those of torchrec's."""

import pytest
from planned import OwnProposer, new_planner, problem
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator

from harness.contract import Progress, Recorder
from harness.measuring.jobs import check
from harness.measuring.timing.turns import SystemClock
from planners.embedding import FAMILY
from planners.embedding.drop_in.planner import Planner
from planners.embedding.observer import observe


def test_the_observer_counts_as_it_does_for_torchrec():
    built = problem("synthetic[tables=6,seed=2,memory=tight]", 16)
    upstream, compiled = (
        check(FAMILY, FAMILY.find(name), built, SystemClock()) for name in ("upstream", "compiled")
    )
    assert compiled.fingerprint == upstream.fingerprint
    for counter in ("proposals", "partitions"):
        assert compiled.counters[counter] == upstream.counters[counter] > 0
    assert compiled.counters["plan_copies"] == 1
    assert min(compiled.phases["arrays"], compiled.phases["search"]) > 0
    assert compiled.phases["partition"] == 0
    assert 0 < compiled.counters["estimates"] < upstream.counters["estimates"]
    options = EmbeddingEnumerator(built.topology, 512, built.constraints).enumerate(
        built.module, built.sharders
    )
    assert upstream.counters["estimates"] == sum(len(option.shards) for option in options)


def test_the_observer_tells_how_far_the_enumeration_is(monkeypatch):
    built, recorder, seen = problem(), Recorder(), []
    estimate = EmbeddingStorageEstimator.estimate

    def estimate_and_look(self, sharding_options, *args, **kwargs):
        estimate(self, sharding_options, *args, **kwargs)
        seen.append((recorder.progress(), len(sharding_options)))

    monkeypatch.setattr(EmbeddingStorageEstimator, "estimate", estimate_and_look)
    with observe(recorder), recorder.call():
        new_planner(built, EmbeddingShardingPlanner).plan(built.module, built.sharders)
    (progress, options), *_ = seen
    assert progress == Progress(options, options, "options estimated", more_follows=True)
    assert recorder.progress().unit == "proposals"


@pytest.mark.parametrize("proposer", [lambda: None, OwnProposer])
def test_the_observer_counts_repeated_proposals_and_those_of_torchrec(proposer):
    built, counters = problem(), []
    for planner_type in (EmbeddingShardingPlanner, Planner):
        recorder = Recorder()
        with observe(recorder), recorder.call():
            new_planner(built, planner_type, proposer=proposer()).plan(built.module, built.sharders)
            assert recorder.progress().done == recorder.counters["proposals"] > 0
        counters.append([recorder.counters[name] for name in ("proposals", "partitions")])
    assert counters[0] == counters[1]
    assert (counters[0][0] > counters[0][1]) == (proposer is not OwnProposer)
