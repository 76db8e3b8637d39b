"""The difference between two plans of a problem, table by table."""

from torchrec.distributed.planner.types import ShardingOption

from planners.embedding.explain.placed_plan import PlacedPlan, described
from planners.embedding.explain.records import DifferentTable, PlanDifference
from planners.embedding.search.space import Devices


def difference(
    here: PlacedPlan, there: PlacedPlan, devices: Devices, variant: str
) -> PlanDifference:
    """Compare a plan with that of another variant; the tables that add most to the mean first."""
    ours, theirs = here.load().perf, there.load().perf
    by_options = float(ours.mean() - theirs.mean())
    tables = []
    other_options = 0
    for place, option in enumerate(here.options):
        other = there.by_fqn[option.fqn]
        mine, its = here.table == place, there.table == other
        is_same_option = _key(option) == _key(there.options[other])
        if is_same_option and (here.rank[mine] == there.rank[its]).all():
            continue
        other_options += not is_same_option
        load, moved = here.load(without=place), there.load(only=other)
        load.perf[:] += moved.perf
        load.used[:] += moved.used
        here_ms, there_ms = float(here.perf[mine].sum()), float(there.perf[its].sum())
        tables.append(
            DifferentTable(
                table=here.names[place],
                here=described(option),
                there=described(there.options[other]),
                here_ms=here_ms,
                there_ms=there_ms,
                mean_ms=(here_ms - there_ms) / here.ranks,
                alone_ms=float(load.perf.max()),
                fits=bool((load.used <= devices.storage).all()),
            )
        )
    return PlanDifference(
        variant=variant,
        slowest_ms=float(theirs.max()),
        mean_ms=float(theirs.mean()),
        by_options_ms=by_options,
        by_balance_ms=float(ours.max() - theirs.max()) - by_options,
        other_options=other_options,
        other_ranks=len(tables) - other_options,
        tables=tuple(sorted(tables, key=lambda each: (-abs(each.mean_ms), each.alone_ms))),
    )


def _key(option: ShardingOption) -> tuple[object, ...]:
    """Return what makes an option that of a table: type, kernel, and the size of each shard."""
    sizes = [(shard.size, shard.offset) for shard in option.shards]
    return option.sharding_type, option.compute_kernel, sizes
