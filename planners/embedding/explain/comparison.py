"""What makes the difference between two plans of a problem, table by table."""

from planners.embedding.explain.placed_plan import PlacedPlan, written
from planners.embedding.explain.records import Against, DifferentTable
from planners.embedding.search.space import Devices


def against(here: PlacedPlan, there: PlacedPlan, devices: Devices, variant: str) -> Against:
    """Compare a plan with that of another variant; the tables that add most to the mean first."""
    ours, theirs = here.load().perf, there.load().perf
    by_options = float(ours.mean() - theirs.mean())
    tables = []
    other_options = 0
    for place, option in enumerate(here.options):
        other = there.by_fqn[option.fqn]
        mine, its = here.table == place, there.table == other
        same_option = _is_same(here, place, there, other)
        if same_option and (here.rank[mine] == there.rank[its]).all():
            continue
        other_options += not same_option
        load, moved = here.load(without=place), there.load(only=other)
        load.perf[:] += moved.perf
        load.used[:] += moved.used
        here_ms, there_ms = float(here.perf[mine].sum()), float(there.perf[its].sum())
        tables.append(
            DifferentTable(
                table=here.names[place],
                here=written(option),
                there=written(there.options[other]),
                here_ms=here_ms,
                there_ms=there_ms,
                mean_ms=(here_ms - there_ms) / here.ranks,
                alone_ms=float(load.perf.max()),
                fits=bool((load.used <= devices.storage).all()),
            )
        )
    return Against(
        variant=variant,
        slowest_ms=float(theirs.max()),
        mean_ms=float(theirs.mean()),
        by_options_ms=by_options,
        by_balance_ms=float(ours.max() - theirs.max()) - by_options,
        other_options=other_options,
        other_ranks=len(tables) - other_options,
        tables=tuple(sorted(tables, key=lambda each: (-abs(each.mean_ms), each.alone_ms))),
    )


def _is_same(here: PlacedPlan, place: int, there: PlacedPlan, other: int) -> bool:
    """Whether a table has the same option in both: type, kernel, and the size of each shard."""
    mine, its = here.options[place], there.options[other]
    return (mine.sharding_type, mine.compute_kernel) == (
        its.sharding_type,
        its.compute_kernel,
    ) and [(each.size, each.offset) for each in mine.shards] == [
        (each.size, each.offset) for each in its.shards
    ]
