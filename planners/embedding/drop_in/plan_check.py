"""Checks a plan with torchrec's own partitioner, perf model and estimators."""

from collections.abc import Callable

from torchrec.distributed.planner.types import (
    PartitionByType,
    Partitioner,
    PerfModel,
    PlannerError,
    Shard,
    ShardingOption,
    Topology,
)

from harness.contract import InfeasibleDecision
from planners.embedding.plan_files.checks import (
    check_memory,
    check_names,
    check_ranks,
    check_tiling,
)
from planners.embedding.search.space import devices_of
from planners.embedding.search.unmade_shards import with_shards

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
    """Return the fault of a plan as a clause, or None if the plan is correct.

    The plan must place the `tables` (torchrec's `fqn`), and the perf model must rate it `rating`
    ms. If given, `partitioner` must choose the plan's ranks, and `estimates` must fill in its
    estimates.
    """
    try:
        _check_layout(plan, tables, topology)
    except InfeasibleDecision as error:
        text = str(error)
        return text[0].lower() + text[1:].rstrip(".")
    rated = perf_model.rate(plan)
    if rated != rating:
        return f"the compiled search rates its plan {rating} ms, torchrec {rated}"
    if estimates is not None:
        again = [
            with_shards(option, [Shard(s.size, s.offset) for s in option.shards]) for option in plan
        ]
        estimates(again)
        for option, other in zip(plan, again, strict=True):
            for shard, own in zip(option.shards, other.shards, strict=True):
                if (shard.perf, shard.storage) != (own.perf, own.storage):
                    return f"torchrec estimates table {option.name} differently"
    if partitioner is not None:
        try:
            placed = partitioner.partition([without_ranks(option) for option in plan], topology)
        except PlannerError:
            return "torchrec's partitioner refuses what the compiled one places"
        if _ranks(placed) != _ranks(plan):
            return "torchrec's partitioner puts shards on other ranks than the compiled one"
    return None


def without_ranks(
    option: ShardingOption, kind: type[ShardingOption] | None = None
) -> ShardingOption:
    """Return a copy of an option; its new shards share sizes and estimates, but have no rank."""
    shards = [Shard(s.size, s.offset, s.storage, s.perf) for s in option.shards]
    return with_shards(option, shards, kind)


def _ranks(plan: list[ShardingOption]) -> dict[str, list[int | None]]:
    return {option.fqn: [shard.rank for shard in option.shards] for option in plan}


def _check_layout(plan: list[ShardingOption], tables: set[str], topology: Topology) -> None:
    """Raise InfeasibleDecision if the tables, tiling, ranks or memory of a plan are wrong."""
    check_names([option.fqn for option in plan], tables)
    ranks, host_ranks = topology.world_size, topology.intra_group_size
    hosts: dict[str, int] = {}
    for option in plan:
        check_tiling(option, tuple(option.tensor.shape), ranks)
        check_ranks(option, ranks, host_ranks)
        if option.dependency and option.partition_by == PartitionByType.HOST.value:
            host = option.shards[0].rank // host_ranks
            if hosts.setdefault(option.dependency, host) != host:
                raise InfeasibleDecision(
                    f"Table {option.name} is on another host than the tables it depends on."
                )
    check_memory(
        [shard for option in plan for shard in option.shards],
        *devices_of(topology).storage.T.tolist(),
    )
