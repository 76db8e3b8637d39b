"""Checks a plan against torchrec's own partitioner, perf model and estimators."""

from collections.abc import Callable, Iterator

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

from harness.contract import InfeasibleDecision
from planners.embedding.shard_checks import check_ranks, check_tiling

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
        table, kind, shards = option.name, option.sharding_type, option.shards
        shape, ranks = tuple(option.tensor.shape), topology.world_size
        try:
            check_tiling(table, kind, shards, shape, ranks)
            check_ranks(table, kind, shards, ranks, topology.intra_group_size)
        except InfeasibleDecision as error:
            text = str(error)
            yield text[0].lower() + text[1:].rstrip(".")
            continue
        if option.dependency and option.partition_by == PartitionByType.HOST.value:
            host = shards[0].rank // topology.intra_group_size
            if hosts.setdefault(option.dependency, host) != host:
                yield f"table {table} is on another host than the tables it depends on"


def _faults_of_memory(plan: list[ShardingOption], topology: Topology) -> Iterator[str]:
    used = [Storage(0, 0, 0) for _ in topology.devices]
    for option in plan:
        for shard in option.shards:
            if shard.rank is not None and 0 <= shard.rank < len(used):
                used[shard.rank] += shard.storage
    for rank, (needed, device) in enumerate(zip(used, topology.devices, strict=True)):
        if not needed.fits_in(device.storage):
            yield f"rank {rank} of the plan needs more memory than it has"
