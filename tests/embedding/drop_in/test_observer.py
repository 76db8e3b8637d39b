"""The observer counts the steps of our planner like torchrec's; torchrec's log is kept if read."""

import functools
import logging

import pytest
from planned import OwnProposer, decided, new_planner, problem
from torch import nn
from torchrec.distributed import logger
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import GreedyProposer
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator

from harness.contract import Progress, Recorder
from planners.embedding.drop_in.planner import Planner
from planners.embedding.observer import observe


@pytest.mark.parametrize("proposer", [lambda: None, GreedyProposer, OwnProposer])
def test_the_observer_counts_as_it_does_for_torchrec(proposer):
    """Proposals may be repeated, and a proposer that is not compiled is torchrec's to run."""
    built, recorders = problem(), []
    for kind in (EmbeddingShardingPlanner, Planner):
        recorder = Recorder()
        with observe(recorder), recorder.call():
            decided(new_planner(built, kind, proposer=proposer()), built)
            assert recorder.progress().done == recorder.counters["proposals"] > 0
        recorders.append(recorder)
    upstream, ours = (recorder.counters for recorder in recorders)
    for counter in ("proposals", "partitions"):
        assert ours[counter] == upstream[counter] > 0
    if proposer is not OwnProposer:
        assert ours["plan_copies"] == 1
        assert 0 < ours["estimates"] < upstream["estimates"]


def test_the_observer_tells_how_far_the_enumeration_is(monkeypatch):
    """Proposals follow."""
    built, recorder, seen = problem(), Recorder(), []
    estimate = EmbeddingStorageEstimator.estimate

    def estimate_and_look(self, sharding_options, *args, **kwargs):
        estimate(self, sharding_options, *args, **kwargs)
        seen.append((recorder.progress(), len(sharding_options)))

    monkeypatch.setattr(EmbeddingStorageEstimator, "estimate", estimate_and_look)
    with observe(recorder), recorder.call():
        decided(new_planner(built, EmbeddingShardingPlanner), built)
    (progress, options), *_ = seen
    assert progress == Progress(options, options, "options estimated", more_follows=True)
    assert recorder.progress().unit == "proposals"


@pytest.mark.skipif(not hasattr(logger, "method_logger"), reason="this torchrec logs no methods")
@pytest.mark.parametrize("handler", [logging.NullHandler(), logging.StreamHandler()])
def test_the_module_is_written_out_for_a_reader_of_torchrecs_log_alone(handler, monkeypatch):
    """Wrappers that a user puts around torchrec's method are kept."""
    written, called, plan = [], [], EmbeddingShardingPlanner.plan

    class Module(nn.Module):
        def __repr__(self):
            written.append(self)
            return "a module"

    @functools.wraps(plan)
    def wrapper(*arguments):
        called.append(arguments)
        return plan(*arguments)

    monkeypatch.setattr(logger.method_logger, "handlers", [handler])
    monkeypatch.setattr(EmbeddingShardingPlanner, "plan", wrapper)
    new_planner(problem()).plan(Module(), [])
    assert len(called) == 1
    assert bool(written) == (type(handler) is logging.StreamHandler)
