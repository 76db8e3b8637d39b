"""Plans problems with torchrec's planner and with ours."""

import built_problem
from compared import come_to
from hypothesis import strategies as st
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import GreedyProposer

from planners.embedding.drop_in.planner import Planner

randoms = st.randoms(use_true_random=False)


class OwnProposer(GreedyProposer):
    """A proposer of a user's own, which is not compiled."""


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


def assert_same(built, arguments=dict, warned: bool = False) -> Planner:
    """Compare our planner's plan with torchrec's; each planner gets new `arguments()`."""
    ours, upstream = (
        new_planner(built, kind, **arguments()) for kind in (Planner, EmbeddingShardingPlanner)
    )
    assert decided(ours, built) == decided(upstream, built)
    assert ours._warned == warned
    return ours
