"""Checks that the compiled search supports a problem, and that its plan is right.

Each check returns the reason why not, as a clause, or None.
"""

from collections.abc import Iterable

import numpy as np
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import DynamicProgrammingProposer
from torchrec.distributed.planner.types import (
    PartitionByType,
    Partitioner,
    PlannerError,
    Proposer,
    Shard,
    ShardingOption,
    Topology,
)
from torchrec.distributed.types import ShardingType

from harness.contract import InfeasibleDecision
from planners.embedding.plan_files.checks import check_plan
from planners.embedding.same_plan.bin_proposer import BinProposer, BinProposer2D
from planners.embedding.same_plan.proposals import STREAMS, rules_of
from planners.embedding.search.options import copy_without_ranks, with_shards
from planners.embedding.search.space import Placement, SearchSpace, devices_of


def obstacle_of_planner(planner: EmbeddingShardingPlanner) -> str | None:
    """Return why the compiled search does not support the components of a `Planner`."""
    if rules_of(planner._partitioner) is None:
        return f"{type(planner._partitioner).__name__} is not compiled"
    if type(planner._perf_model) is not NoopPerfModel:
        return f"{type(planner._perf_model).__name__} is not compiled"
    if planner._perf_model._topology.world_size != planner._topology.world_size:
        return "the perf model is for another number of ranks"
    return obstacle_of_proposers(planner._proposers) if planner._mode == "same-plan" else None


def obstacle_of_proposers(
    proposers: Iterable[Proposer], topology: Topology | None = None
) -> str | None:
    """Return why the proposals, on this topology if given, are not compiled."""
    types = [type(proposer) for proposer in proposers]
    for kind in types:
        if kind not in STREAMS:
            return f"{kind.__name__} is not compiled"
    if topology is None:
        return None
    hbm, ddr = devices_of(topology).storage[:, :2].sum(0)
    if (DynamicProgrammingProposer in types and hbm <= 0) or (
        {BinProposer, BinProposer2D}.intersection(types) and min(hbm, ddr) < 0
    ):
        return "there is no memory to cut into bins"
    return None


def obstacle_of_problem(space: SearchSpace, topology: Topology) -> str | None:
    """Return why the compiled search does not support this problem."""
    # GreedyPerfPartitioner puts the shards of such an option on different ranks.
    by_columns = EmbeddingComputeKernel.KEY_VALUE.value, ShardingType.COLUMN_WISE.value
    if any((option.compute_kernel, option.sharding_type) == by_columns for option in space.options):
        return "the placement of kernel key_value by columns is not compiled"
    if not {option.partition_by for option in space.options} <= {
        by.value for by in PartitionByType
    }:
        return "torchrec does not know how to place an option"
    if (space.placement == Placement.HOSTS).any() and not devices_of(topology).hosts:
        return "there is no whole host for a grid"
    together = np.bincount(space.group)[space.group[space.table]] > 1
    if (together & (space.placement == Placement.DEVICE)).any():
        return "tables that depend on each other may be placed by device"
    estimates = np.hstack([space.storage, space.perf])
    if not np.isfinite(estimates).all() or (estimates < 0).any():
        return "an estimate is negative or not finite"
    for rank, device in enumerate(topology.devices):
        sizes = (device.storage.hbm, device.storage.ddr, device.storage.ssd)
        whole = all(isinstance(size, int) for size in sizes)
        if device.rank != rank or device.perf.total or not whole:
            return "the devices are not empty at first, or do not hold whole bytes"
    return None


def fault_of(
    planner: EmbeddingShardingPlanner,
    plan: list[ShardingOption],
    rating: float,
    tables: set[str],
    topology: Topology,
    partitioner: Partitioner | None = None,
) -> str | None:
    """Return the fault of a plan of a `Planner` as a clause, or None if the plan is right.

    It must place the `tables` (torchrec's `fqn`), and the perf model must rate it `rating` ms. If
    given, `partitioner` must choose its ranks. If the planner checks its plans, torchrec must
    estimate its shards alike; a user's own enumerator has estimated them itself.
    """
    try:
        _check_layout(plan, tables, topology)
    except InfeasibleDecision as error:
        text = str(error)
        return text[0].lower() + text[1:].rstrip(".")
    rated = planner._perf_model.rate(plan)
    if rated != rating:
        return f"the compiled search rates its plan {rating} ms, torchrec {rated}"
    enumerator = planner._own_enumerator
    if planner._check and planner._enumerator is enumerator:
        again = [with_shards(o, [Shard(s.size, s.offset) for s in o.shards]) for o in plan]
        enumerator.torchrecs().populate_estimates(again)
        for option, other in zip(plan, again, strict=True):
            for shard, own in zip(option.shards, other.shards, strict=True):
                if (shard.perf, shard.storage) != (own.perf, own.storage):
                    return f"torchrec estimates table {option.name} differently"
    if partitioner is not None:
        unplaced = [copy_without_ranks(option) for option in plan]
        try:
            placed = partitioner.partition(unplaced, topology)
        except PlannerError:
            return "torchrec's partitioner refuses what the compiled one places"
        if _ranks(placed) != _ranks(plan):
            return "torchrec's partitioner puts shards on other ranks than the compiled one"
    return None


def _ranks(plan: list[ShardingOption]) -> dict[str, list[int | None]]:
    return {option.fqn: [shard.rank for shard in option.shards] for option in plan}


def _check_layout(plan: list[ShardingOption], tables: set[str], topology: Topology) -> None:
    """Raise InfeasibleDecision if the tables, tiling, ranks or memory of a plan are wrong."""
    host_ranks = topology.intra_group_size
    capacities = devices_of(topology).storage.T.tolist()
    check_plan(plan, tables, topology.world_size, host_ranks, *capacities)
    hosts: dict[str, int] = {}
    for option in plan:
        if option.dependency and option.partition_by == PartitionByType.HOST.value:
            host = option.shards[0].rank // host_ranks
            if hosts.setdefault(option.dependency, host) != host:
                raise InfeasibleDecision(
                    f"Table {option.name} is on another host than the tables it depends on."
                )
