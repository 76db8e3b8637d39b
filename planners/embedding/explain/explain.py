"""An explanation of a plan: its heaviest rank, what each table could be instead, what bounds it.

Everything here is by torchrec's own estimates, on the arrays of `search`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict

import numpy as np
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.types import ShardingOption
from torchrec.distributed.types import ShardingType

from harness.contract import Explanation, Question, UsageError
from planners.embedding.decision import Plan
from planners.embedding.explain.arguments import ARGUMENTS, reasons
from planners.embedding.explain.placed_plan import PlacedPlan, described, tables_of
from planners.embedding.explain.records import (
    Alternative,
    BoundExplained,
    BoundTable,
    DifferentTable,
    FullestRank,
    PlacedShard,
    PlanDifference,
    PlanExplained,
    RankExplained,
    TableExplained,
)
from planners.embedding.explain.replacement import KINDS, Load, Obstacle, replace
from planners.embedding.explain.text import sections, sentences
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.quality import arrays
from planners.embedding.search.space import Devices, SearchSpace

PERF = ("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms", "prefetch_compute")
"""The components of torchrec's `Perf` that are in its total."""

# What is better by less than this share is better by rounding.
_ROUNDING = 1e-9


def explain(problem: EmbeddingProblem, plan: Plan, question: Question[Plan]) -> Explanation:
    """Say why a valid plan is as it is; raises UsageError where there is no such rank."""
    return written(explained(problem, plan, question), question.top)


def written(found: PlanExplained, top: int) -> Explanation:
    """Write the figures of an explanation, with at most so many tables of each kind."""
    return Explanation(tuple(sentences(found)), tuple(sections(found, top)), asdict(found))


def explained(problem: EmbeddingProblem, plan: Plan, question: Question[Plan]) -> PlanExplained:
    """Work out the figures of an explanation; raises UsageError where there is no such rank."""
    space, devices = arrays(problem)
    placed = PlacedPlan(plan.options, devices.ranks)
    load = placed.load()
    slowest = int(load.perf.argmax())
    rank = slowest if question.rank is None else question.rank
    if not 0 <= rank < devices.ranks:
        raise UsageError(f"There is no rank {rank}; ranks are from 0 to {devices.ranks - 1}.")
    other = question.other_decision
    return PlanExplained(
        slowest_rank=slowest,
        slowest_ms=float(load.perf[slowest]),
        mean_ms=float(load.perf.mean()),
        ranks_ms=tuple(load.perf.tolist()),
        bound=_bound(space, devices, placed),
        memory=tuple(_fullest(load, devices)),
        rank=_rank(placed, load, rank),
        tables=tuple(
            _table(problem, space, devices, placed, rank, place)
            for place in _dearest(placed, rank)[: question.top]
        ),
        against=None
        if other is None
        else _difference(placed, PlacedPlan(other.options, devices.ranks), devices, question.other),
    )


def _bound(space: SearchSpace, devices: Devices, placed: PlacedPlan) -> BoundExplained:
    why = reasons(space, devices)
    places = [placed.by_fqn[fqn] for fqn in tables_of(space)]
    placed_ms = np.bincount(placed.table, placed.perf, len(placed.options))
    with_memory = why.cheapest
    if why.binding not in ("table", "work", "shards"):
        with_memory = np.where(why.relaxed >= 0, why.relaxed, why.cheapest)
    needed = space.option_storage[why.cheapest].sum(axis=0)
    usable = np.maximum(devices.storage, 0).sum(axis=0)
    tables = [
        BoundTable(
            placed.names[place],
            described(space.options[cheapest]),
            float(space.option_perf[cheapest]),
            described(space.options[relaxed]),
            float(space.option_perf[relaxed]),
            described(placed.options[place]),
            float(placed_ms[place]),
        )
        for place, cheapest, relaxed in zip(places, why.cheapest, with_memory, strict=True)
    ]
    return BoundExplained(
        ms=why.milliseconds,
        binding=why.binding,
        proven=why.proven,
        meaning={name: ARGUMENTS[name] for name in why.proven},
        table=placed.names[places[why.table]],
        needed_bytes=dict(zip(KINDS, needed.tolist(), strict=True)),
        usable_bytes=dict(zip(KINDS, usable.tolist(), strict=True)),
        tables=tuple(sorted(tables, key=lambda each: -each.excess_ms)),
    )


def _fullest(load: Load, devices: Devices) -> Iterator[FullestRank]:
    for kind, used, usable in zip(KINDS, load.used.T, devices.storage.T, strict=True):
        if used.any():
            rank = int((used / np.maximum(usable, 1)).argmax())
            yield FullestRank(kind, rank, int(used[rank]), int(usable[rank]))


def _rank(placed: PlacedPlan, load: Load, rank: int) -> RankExplained:
    whole = float(load.perf[rank])
    shards = [
        PlacedShard(
            table=name,
            sharding_type=option.sharding_type,
            compute_kernel=option.compute_kernel,
            size=(int(shard.size[0]), int(shard.size[1])),
            ms=float(shard.perf.total),
            share=float(shard.perf.total) / whole if whole else 0.0,
            perf_ms={part: float(getattr(shard.perf, part)) for part in PERF},
            hbm_bytes=int(shard.storage.hbm),
            ddr_bytes=int(shard.storage.ddr),
        )
        for name, option in zip(placed.names, placed.options, strict=True)
        for shard in option.shards
        if shard.rank == rank
    ]
    return RankExplained(
        rank=rank,
        ms=whole,
        perf_ms={name: sum(shard.perf_ms[name] for shard in shards) for name in PERF},
        hbm_bytes=int(load.used[rank, 0]),
        ddr_bytes=int(load.used[rank, 1]),
        shards=tuple(sorted(shards, key=lambda shard: -shard.ms)),
    )


def _dearest(placed: PlacedPlan, rank: int) -> list[int]:
    """Return the tables with shards on a rank, as places in the plan, the dearest there first."""
    on_rank = placed.rank == rank
    cost = np.bincount(placed.table[on_rank], placed.perf[on_rank], len(placed.options))
    there = set(placed.table[on_rank].tolist())
    return [place for place in np.argsort(-cost, kind="stable").tolist() if place in there]


def _table(
    problem: EmbeddingProblem,
    space: SearchSpace,
    devices: Devices,
    placed: PlacedPlan,
    rank: int,
    place: int,
) -> TableExplained:
    """Say what a table of a plan could be instead: as it is first, then what helps most."""
    option, others = placed.options[place], placed.load(without=place)
    table = tables_of(space)[option.fqn]
    numbers = np.flatnonzero(space.table == table).tolist()
    together = int((space.group == space.group[table]).sum()) - 1

    def alternative(number: int) -> Alternative:
        try:
            if together:
                raise Obstacle(f"torchrec places it together with {together} other tables")
            load = replace(space, devices, others, number)[1]
        except Obstacle as obstacle:
            return _alternative(space.options[number], rank, obstacle=obstacle)
        return _alternative(space.options[number], rank, load)

    def slowest(each: Alternative) -> float:
        return math.inf if each.slowest_rank_ms is None else each.slowest_rank_ms

    now = _alternative(option, rank, placed.load(), present=True)
    present = placed.number_in(space, place)
    found = [
        each
        for number, each in zip(numbers, map(alternative, numbers), strict=True)
        # The present option itself is of interest only where it would be better placed otherwise.
        if number != present or slowest(each) < slowest(now) * (1 - _ROUNDING)
    ]
    found.sort(key=lambda each: (slowest(each), each.ms if each.why_not else 0.0))
    return TableExplained(
        table=placed.names[place],
        rank_ms=float(placed.load(only=place).perf[rank]),
        alternatives=(now, *found),
        left_out=_left_out(problem, option, [space.options[number] for number in numbers]),
    )


def _alternative(
    option: ShardingOption,
    rank: int,
    load: Load | None = None,
    obstacle: Obstacle | None = None,
    present: bool = False,
) -> Alternative:
    """Describe an option of a table, with the load of all ranks or what stands against it."""
    perf = np.array([shard.perf.total for shard in option.shards], np.float64)
    return Alternative(
        sharding_type=option.sharding_type,
        compute_kernel=option.compute_kernel,
        shards=len(option.shards),
        ms=float(perf.sum()),
        largest_shard_ms=float(perf.max()),
        hbm_bytes=sum(int(shard.storage.hbm) for shard in option.shards),
        ddr_bytes=sum(int(shard.storage.ddr) for shard in option.shards),
        present=present,
        slowest_rank=None if load is None else int(load.perf.argmax()),
        slowest_rank_ms=None if load is None else float(load.perf.max()),
        this_rank_ms=None if load is None else float(load.perf[rank]),
        **asdict(obstacle or Obstacle("")),
    )


def _left_out(
    problem: EmbeddingProblem, option: ShardingOption, enumerated: Iterable[ShardingOption]
) -> Mapping[str, str]:
    """Say of the sharding types and kernels that were not enumerated for a table, why not."""
    device = problem.topology.compute_device
    constraint = problem.constraints.get(option.name)
    types: set[str] = set()
    kernels: set[str] = set()
    for sharder in problem.sharders:
        if sharder.module_type is type(option.module[1]):
            types.update(sharder.sharding_types(device))
            kernels.update(k for each in types for k in sharder.compute_kernels(each, device))
            break
    there = {name for each in enumerated for name in (each.sharding_type, each.compute_kernel)}

    def reason(name: str, allowed: list[str] | None) -> str:
        if allowed and name not in allowed:
            return "its constraints do not allow it"
        if name not in types | kernels:
            return "its sharder does not offer it"
        return "torchrec enumerates none here"

    found = {
        each.value: reason(each.value, constraint and constraint.sharding_types)
        for each in ShardingType
    }
    found |= {
        each.value: reason(each.value, constraint and constraint.compute_kernels)
        for each in EmbeddingComputeKernel
        if each.value in kernels
    }
    return {name: why for name, why in found.items() if name not in there}


def _difference(
    here: PlacedPlan, there: PlacedPlan, devices: Devices, variant: str
) -> PlanDifference:
    """Compare with another variant's plan; the tables that add most to the mean first."""
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
