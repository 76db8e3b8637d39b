"""Checks a plan against torchrec's own partitioner, perf model and estimators."""

from collections.abc import Callable, Iterator

import numpy as np
from torchrec.distributed.planner.types import (
    PartitionByType,
    Partitioner,
    PerfModel,
    PlannerError,
    Shard,
    ShardingOption,
    Storage,
    Topology,
)
from torchrec.distributed.types import ShardingType

Estimates = Callable[[list[ShardingOption]], None]
"""Fills in the estimates of options that have none."""


def fault_of(
    plan: list[ShardingOption],
    rating: float,
    tables: set[str],
    topology: Topology,
    perf_model: PerfModel,
    partitioner: Partitioner | None = None,
    estimates: Estimates | None = None,
) -> str | None:
    """Return what is wrong with a plan, as a clause, or None.

    Args:
        plan: the chosen options with the ranks of their shards.
        rating: the milliseconds that it is said to take.
        tables: torchrec's names (`fqn`) of all tables.
        topology: what the ranks can hold.
        perf_model: torchrec's, which rates it again.
        partitioner: torchrec's, which must put the shards on the same ranks; None for a plan that
            it has not made.
        estimates: asks torchrec's estimators about all shards; None where these are those of the
            user's own enumerator.
    """
    faults = (
        *_faults_of_tables(plan, tables, topology),
        *_faults_of_memory(plan, topology),
    )
    if faults:
        return faults[0]
    rated = perf_model.rate(plan)
    if rated != rating:
        return f"the compiled search rates its plan {rating} ms, torchrec {rated}"
    if estimates is not None:
        again = _without_ranks(plan, estimated=False)
        estimates(again)
        for option, other in zip(plan, again, strict=True):
            for shard, own in zip(option.shards, other.shards, strict=True):
                if (shard.perf, shard.storage) != (own.perf, own.storage):
                    return f"torchrec's estimates of table {option.name} are others"
    if partitioner is not None:
        try:
            placed = partitioner.partition(_without_ranks(plan, estimated=True), topology)
        except PlannerError:
            return "torchrec's partitioner refuses what the compiled one places"
        if _ranks(placed) != _ranks(plan):
            return "torchrec's partitioner puts shards on other ranks than the compiled one"
    return None


def _without_ranks(plan: list[ShardingOption], estimated: bool) -> list[ShardingOption]:
    copies = []
    for option in plan:
        copied = object.__new__(ShardingOption)
        vars(copied).update(vars(option))
        copied.shards = [
            Shard(shard.size, shard.offset, shard.storage, shard.perf)
            if estimated
            else Shard(shard.size, shard.offset)
            for shard in option.shards
        ]
        copies.append(copied)
    return copies


def _ranks(plan: list[ShardingOption]) -> dict[str, list[int | None]]:
    return {option.fqn: [shard.rank for shard in option.shards] for option in plan}


def _faults_of_tables(
    plan: list[ShardingOption], tables: set[str], topology: Topology
) -> Iterator[str]:
    names = [option.fqn for option in plan]
    for name in sorted(tables.symmetric_difference(names)):
        yield f"the plan does not place each table once: {name.lstrip('.')}"
    if len(names) > len(set(names)):
        yield "the plan has a table twice"
    hosts: dict[str, int] = {}
    for option in plan:
        ranks = [shard.rank for shard in option.shards]
        if not all(rank is not None and 0 <= rank < topology.world_size for rank in ranks):
            yield f"a shard of table {option.name} is on no rank that exists"
        elif not _tiles(option):
            yield f"the shards of table {option.name} do not tile it"
        elif not _may_be_there(option, ranks, topology, hosts):
            yield f"the shards of table {option.name} are on ranks that {option.sharding_type} bars"


def _tiles(option: ShardingOption) -> bool:
    """Whether shards cover a table once: the same area, all inside, no two overlapping."""
    shape = tuple(option.tensor.shape)
    boxes = np.array([[*shard.offset, *shard.size] for shard in option.shards], np.int64)
    if boxes.shape[1] != 4 or len(shape) != 2:  # only matrices are cut
        return False
    boxes = boxes[(boxes[:, 2:] > 0).all(axis=1)]
    if option.sharding_type == ShardingType.DATA_PARALLEL.value:
        return bool((boxes == [0, 0, *shape]).all())
    begin, end = boxes[:, :2], boxes[:, :2] + boxes[:, 2:]
    overlap = ((begin[:, np.newaxis] < end) & (begin < end[:, np.newaxis])).all(axis=2)
    area = sum(rows * columns for rows, columns in boxes[:, 2:].tolist())
    inside = bool((begin >= 0).all() and (end <= shape).all())
    return inside and area == shape[0] * shape[1] and int(overlap.sum()) == len(boxes)


def _may_be_there(
    option: ShardingOption, ranks: list[int], topology: Topology, hosts: dict[str, int]
) -> bool:
    """Whether a sharding type may be on these ranks; `hosts` gets where dependent tables are."""
    on_host = topology.intra_group_size
    if option.partition_by == PartitionByType.UNIFORM.value:
        return ranks == list(range(topology.world_size))
    if option.partition_by == PartitionByType.HOST.value:
        host = ranks[0] // on_host
        if option.dependency and hosts.setdefault(option.dependency, host) != host:
            return False
        first = host * on_host
        if option.sharding_type == ShardingType.TABLE_ROW_WISE.value:
            return ranks == list(range(first, first + on_host))
        return all(first <= rank < first + on_host for rank in ranks)
    if option.partition_by == PartitionByType.MULTI_HOST.value:
        blocks = [ranks[start : start + on_host] for start in range(0, len(ranks), on_host)]
        return all(
            block[0] % on_host == 0 and block == list(range(block[0], block[0] + on_host))
            for block in blocks
        )
    return True


def _faults_of_memory(plan: list[ShardingOption], topology: Topology) -> Iterator[str]:
    used = [Storage(0, 0, 0) for _ in topology.devices]
    for option in plan:
        for shard in option.shards:
            if shard.rank is not None and 0 <= shard.rank < len(used):
                used[shard.rank] += shard.storage
    for rank, (needed, device) in enumerate(zip(used, topology.devices, strict=True)):
        if not needed.fits_in(device.storage):
            yield f"rank {rank} of the plan needs more memory than it has"
