"""Plans problems with torchrec's planner and with ours."""

from unittest import mock

import built_problem
from compared import come_to
from hypothesis import strategies as st
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import GreedyProposer

from planners.embedding.drop_in.planner import Planner

randoms = st.randoms(use_true_random=False)

# As little work as in a hundredth of a second; linear programmes are timed by the solver, and have
# all the time that they need.
little_work = mock.patch("planners.embedding.best_plan.search.WORK_PER_SECOND", 2e4)


def standing_still() -> float:
    return 0.0


def problem(workload: str = "synthetic[tables=5,seed=2]", gpus: int = 8):
    return built_problem.problem(workload, gpus=gpus)


def new_planner(built, planner=Planner, **arguments):
    return planner(
        **{
            "topology": built.topology,
            "constraints": built.constraints,
            "storage_reservation": built.storage_reservation(),
            "proposer": GreedyProposer(),
            "stats": [],
            "debug": False,
            **arguments,
        }
    )


def decided(planner: EmbeddingShardingPlanner, built):
    planner._stats = []
    return come_to(planner, built.module, built.sharders)


def assert_same(built, warned: bool = False, **factories) -> Planner:
    """Compare our planner's plan with torchrec's; each planner gets new arguments."""
    compiled, upstream = (
        new_planner(built, planner, **{name: make() for name, make in factories.items()})
        for planner in (Planner, EmbeddingShardingPlanner)
    )
    assert decided(compiled, built) == decided(upstream, built)
    assert compiled._warned == warned
    return compiled


class OwnProposer(GreedyProposer):
    pass
