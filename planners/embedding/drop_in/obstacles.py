"""Finds the reason, as a clause, why the compiled search does not support a problem."""

from collections.abc import Iterable

import numpy as np
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.proposers import DynamicProgrammingProposer
from torchrec.distributed.planner.types import (
    DeviceHardware,
    PartitionByType,
    Partitioner,
    PerfModel,
    Proposer,
    Topology,
)
from torchrec.distributed.types import ShardingType

from planners.embedding.same_plan.bin_proposer import BinProposer, BinProposer2D
from planners.embedding.same_plan.partition import rules_of
from planners.embedding.same_plan.proposals import STREAMS
from planners.embedding.search.space import Placement, SearchSpace, devices_of

_PARTITION_BY = {kind.value for kind in PartitionByType}
_ON_HOSTS = PartitionByType.MULTI_HOST.value


def of_components(partitioner: Partitioner, perf_model: PerfModel, ranks: int) -> str | None:
    """Return why the compiled search does not support these components, or None if it does."""
    if rules_of(partitioner) is None:
        return f"{type(partitioner).__name__} is not compiled"
    if type(perf_model) is not NoopPerfModel:
        return f"{type(perf_model).__name__} is not compiled"
    if perf_model._topology.world_size != ranks:
        return "the perf model is for another number of ranks"
    return None


def of_proposers(proposers: Iterable[Proposer], topology: Topology | None = None) -> str | None:
    """Return why the proposals, on this topology if given, are not compiled, or None if they are.

    Only the search for torchrec's plan makes the proposals of a planner's own proposers.
    """
    for proposer in proposers:
        if type(proposer) not in STREAMS:
            return f"{type(proposer).__name__} is not compiled"
    if topology is None:
        return None
    types = {type(proposer) for proposer in proposers}
    hbm, ddr = devices_of(topology).storage[:, :2].sum(0)
    if (DynamicProgrammingProposer in types and hbm <= 0) or (
        types & {BinProposer, BinProposer2D} and min(hbm, ddr) < 0
    ):
        return "there is no memory to cut into bins"
    return None


def of_problem(space: SearchSpace, topology: Topology) -> str | None:
    """Return why the compiled search does not support this problem, or None if it does."""
    # GreedyPerfPartitioner puts the shards of such an option on different ranks.
    if any(
        option.compute_kernel == EmbeddingComputeKernel.KEY_VALUE.value
        and option.sharding_type == ShardingType.COLUMN_WISE.value
        for option in space.options
    ):
        return "the placement of kernel key_value by columns is not compiled"
    placed_by = {option.partition_by for option in space.options}
    if placed_by - _PARTITION_BY:
        return "torchrec does not know how to place an option"
    if _ON_HOSTS in placed_by and topology.intra_group_size > topology.world_size:
        return "there is no whole host for a grid"
    together = np.bincount(space.group)[space.group[space.table]] > 1
    if (together & (space.placement == Placement.DEVICE)).any():
        return "tables that depend on each other may be placed by device"
    estimates = np.hstack([space.storage, space.perf])
    if not np.isfinite(estimates).all() or (estimates < 0).any():
        return "an estimate is negative or not finite"
    if not all(_is_plain(device, rank) for rank, device in enumerate(topology.devices)):
        return "the devices are not empty at first, or do not hold whole bytes"
    return None


def _is_plain(device: DeviceHardware, rank: int) -> bool:
    held = (device.storage.hbm, device.storage.ddr, device.storage.ssd)
    return (
        device.rank == rank
        and not device.perf.total
        and all(isinstance(amount, int) for amount in held)
    )
