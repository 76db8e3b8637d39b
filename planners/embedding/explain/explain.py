"""Explains a plan: its slowest rank, the alternatives of its tables, and its bound.

All figures are torchrec's estimates, computed on the search space as arrays.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import chain

import numpy as np
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.types import ShardingOption
from torchrec.distributed.types import ShardingType

from harness.contract import Explanation, Question, UsageError, unknown
from planners.embedding.best_plan.parts import parts_of
from planners.embedding.decision import Plan
from planners.embedding.explain import records
from planners.embedding.explain.arguments import ARGUMENTS, reasons
from planners.embedding.explain.placement import (
    KINDS,
    Obstacle,
    PlacedPlan,
    described,
    replace,
    tables_of,
)
from planners.embedding.explain.text import alternatives, sections, sentences
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.quality import arrays
from planners.embedding.search.space import Devices, Load, SearchSpace

# A smaller share than this is rounding.
_ROUNDING = 1e-9


def explain(problem: EmbeddingProblem, plan: Plan, question: Question[Plan]) -> Explanation:
    """Explain a valid plan as text and figures; raises UsageError for an unknown rank."""
    return written(explained(problem, plan, question), question.top)


def written(figures: records.PlanExplained, top: int) -> Explanation:
    """Return the figures and, as text, sentences and sections on up to `top` tables."""
    return Explanation(tuple(sentences(figures)), tuple(sections(figures, top)), asdict(figures))


def explain_table(problem: EmbeddingProblem, plan: Plan, question: Question[Plan]) -> Explanation:
    """Explain a table of a valid plan, with all other tables where they are.

    Raises UsageError for an unknown table.
    """
    space, devices = arrays(problem)
    placed = PlacedPlan(plan.options, devices.ranks)
    if question.table not in placed.names:
        raise unknown("table", question.table, placed.names)
    number = placed.names.index(question.table)
    rank = int(placed.load(only=number).perf.argmax())
    table = table_explained(problem, space, devices, placed, rank, number)
    now, best = table.alternatives[0], table.best
    sentence = (
        f"Table {table.table} is placed as {now.option}; the slowest rank is rank "
        f"{now.slowest_rank} with {now.slowest_rank_ms:.4g} ms. "
    )
    if best.present:
        sentence += "No other placement of this table alone makes it faster."
    else:
        sentence += (
            f"With this table as {best.option}, it would be rank {best.slowest_rank} with "
            f"{best.slowest_rank_ms:.4g} ms."
        )
    return Explanation((sentence,), (alternatives(table, rank, table.left_out),), asdict(table))


def explained(
    problem: EmbeddingProblem, plan: Plan, question: Question[Plan]
) -> records.PlanExplained:
    """Return the figures that explain a valid plan; raises UsageError for an unknown rank."""
    space, devices = arrays(problem)
    placed = PlacedPlan(plan.options, devices.ranks)
    load = placed.load()
    slowest = int(load.perf.argmax())
    rank = slowest if question.rank is None else question.rank
    if not 0 <= rank < devices.ranks:
        raise UsageError(f"There is no rank {rank}; ranks are from 0 to {devices.ranks - 1}.")
    against = None
    if question.other_decision is not None:
        other = PlacedPlan(question.other_decision.options, devices.ranks)
        against = _difference(placed, other, devices, question.other)
    return records.PlanExplained(
        slowest_rank=slowest,
        slowest_ms=float(load.perf[slowest]),
        mean_ms=float(load.perf.mean()),
        ranks_ms=tuple(load.perf.tolist()),
        bound=_bound(space, devices, placed),
        memory=tuple(_fullest(load, devices)),
        rank=_rank(placed, load, rank),
        tables=tuple(
            table_explained(problem, space, devices, placed, rank, table)
            for table in _most_expensive(placed, rank)[: question.top]
        ),
        against=against,
    )


def _bound(space: SearchSpace, devices: Devices, placed: PlacedPlan) -> records.BoundExplained:
    why = reasons(space, devices)
    in_plan = [placed.by_fqn[fqn] for fqn in tables_of(space)]
    with_memory = why.cheapest
    if why.binding not in ("table", "work", "shards"):
        with_memory = np.where(why.relaxed >= 0, why.relaxed, why.cheapest)
    needed = space.option_storage[why.cheapest].sum(axis=0)
    usable = np.maximum(devices.storage, 0).sum(axis=0)
    tables = [
        records.BoundTable(
            placed.names[table],
            described(space.options[cheapest]),
            float(space.option_perf[cheapest]),
            described(space.options[relaxed]),
            float(space.option_perf[relaxed]),
            described(placed.options[table]),
            float(placed.space.option_perf[table]),
        )
        for table, cheapest, relaxed in zip(in_plan, why.cheapest, with_memory, strict=True)
    ]
    return records.BoundExplained(
        ms=why.milliseconds,
        binding=why.binding,
        proven=why.proven,
        meaning={name: ARGUMENTS[name] for name in why.proven},
        table=placed.names[in_plan[why.table]],
        needed_bytes=dict(zip(KINDS, needed.tolist(), strict=True)),
        usable_bytes=dict(zip(KINDS, usable.tolist(), strict=True)),
        tables=tuple(sorted(tables, key=lambda table: -table.excess_ms)),
    )


def _fullest(load: Load, devices: Devices) -> Iterator[records.FullestRank]:
    for kind, used, usable in zip(KINDS, load.used.T, devices.storage.T, strict=True):
        if used.any():
            rank = int((used / np.maximum(usable, 1)).argmax())
            yield records.FullestRank(kind, rank, int(used[rank]), int(usable[rank]))


def _rank(placed: PlacedPlan, load: Load, rank: int) -> records.RankExplained:
    whole = float(load.perf[rank])
    shards = [
        records.PlacedShard(
            table=name,
            sharding_type=option.sharding_type,
            compute_kernel=option.compute_kernel,
            size=(int(shard.size[0]), int(shard.size[1])),
            ms=float(shard.perf.total),
            share=float(shard.perf.total) / whole if whole else 0.0,
            perf_ms={part: float(getattr(shard.perf, part)) for part in records.PERF},
            hbm_bytes=int(shard.storage.hbm),
            ddr_bytes=int(shard.storage.ddr),
        )
        for name, option in zip(placed.names, placed.options, strict=True)
        for shard in option.shards
        if shard.rank == rank
    ]
    return records.RankExplained(
        rank=rank,
        ms=whole,
        perf_ms={name: sum(shard.perf_ms[name] for shard in shards) for name in records.PERF},
        hbm_bytes=int(load.used[rank, 0]),
        ddr_bytes=int(load.used[rank, 1]),
        shards=tuple(sorted(shards, key=lambda shard: -shard.ms)),
    )


def _most_expensive(placed: PlacedPlan, rank: int) -> list[int]:
    """Return the tables with shards on a rank, in order of decreasing cost there."""
    on_rank = placed.rank == rank
    cost = np.bincount(placed.table[on_rank], placed.perf[on_rank], len(placed.options))
    there = set(placed.table[on_rank].tolist())
    return [table for table in np.argsort(-cost, kind="stable").tolist() if table in there]


def table_explained(
    problem: EmbeddingProblem,
    space: SearchSpace,
    devices: Devices,
    placed: PlacedPlan,
    rank: int,
    table: int,
) -> records.TableExplained:
    """Explain a table of a plan: its current option first, then its alternatives, best first."""
    option, others = placed.options[table], placed.load(without=table)
    number_of_table = tables_of(space)[option.fqn]
    numbers = np.flatnonzero(space.table == number_of_table).tolist()
    together = int((space.group == space.group[number_of_table]).sum()) - 1
    now = _alternative(placed.space, table, rank, placed.load(), present=True)
    present = placed.number_in(space, table)
    parts = parts_of(space, devices)
    found = []
    for number in numbers:
        try:
            if together:
                raise Obstacle(f"torchrec places it together with {together} other tables")
            load = replace(space, devices, parts, others, number)[1]
            alternative = _alternative(space, number, rank, load)
        except Obstacle as obstacle:
            alternative = _alternative(space, number, rank, obstacle=obstacle)
        # The present option is listed again only if other ranks are better for it.
        if number != present or _slowest(alternative) < _slowest(now) * (1 - _ROUNDING):
            found.append(alternative)
    found.sort(key=lambda other: (_slowest(other), other.ms if other.why_not else 0.0))
    return records.TableExplained(
        table=placed.names[table],
        rank_ms=float(placed.load(only=table).perf[rank]),
        alternatives=(now, *found),
        left_out=_left_out(problem, option, [space.options[number] for number in numbers]),
    )


def _slowest(alternative: records.Alternative) -> float:
    ms = alternative.slowest_rank_ms
    return math.inf if ms is None else ms


def _alternative(
    space: SearchSpace,
    number: int,
    rank: int,
    load: Load | None = None,
    obstacle: Obstacle | None = None,
    present: bool = False,
) -> records.Alternative:
    """Describe an option of a table, given the ranks' load with it or the obstacle to it."""
    option = space.options[number]
    hbm, ddr, _ = space.option_storage[number].tolist()
    return records.Alternative(
        sharding_type=option.sharding_type,
        compute_kernel=option.compute_kernel,
        shards=len(option.shards),
        ms=float(space.option_perf[number]),
        largest_shard_ms=float(space.largest_shard[number]),
        hbm_bytes=hbm,
        ddr_bytes=ddr,
        present=present,
        slowest_rank=None if load is None else int(load.perf.argmax()),
        slowest_rank_ms=None if load is None else float(load.perf.max()),
        this_rank_ms=None if load is None else float(load.perf[rank]),
        **asdict(obstacle or Obstacle("")),
    )


def _left_out(
    problem: EmbeddingProblem, option: ShardingOption, enumerated: Iterable[ShardingOption]
) -> Mapping[str, str]:
    """Return the reason for each sharding type and kernel that no option of the table has."""
    device = problem.topology.compute_device
    constraint = problem.constraints.get(option.name)
    kind = type(option.module[1])
    sharders = [sharder for sharder in problem.sharders if sharder.module_type is kind]
    offered: dict[str, list[str]] = {
        name: sharder.compute_kernels(name, device)
        for sharder in sharders[:1]
        for name in sharder.sharding_types(device)
    }
    kernels = set(chain.from_iterable(offered.values()))
    there = {name for other in enumerated for name in (other.sharding_type, other.compute_kernel)}

    def reason(name: str, allowed: list[str] | None) -> str:
        if allowed and name not in allowed:
            return "its constraints do not allow it"
        if name not in offered and name not in kernels:
            return "its sharder does not offer it"
        return "torchrec enumerates none here"

    possible = [
        *((name.value, constraint and constraint.sharding_types) for name in ShardingType),
        *(
            (name.value, constraint and constraint.compute_kernels)
            for name in EmbeddingComputeKernel
            if name.value in kernels
        ),
    ]
    return {name: reason(name, allowed) for name, allowed in possible if name not in there}


def _difference(
    here: PlacedPlan, there: PlacedPlan, devices: Devices, variant: str
) -> records.PlanDifference:
    """Compare two plans table by table, the largest difference of mean cost first."""
    ours, theirs = here.load().perf, there.load().perf
    by_options = float(ours.mean() - theirs.mean())
    tables = []
    other_options = 0
    for table, option in enumerate(here.options):
        other = there.by_fqn[option.fqn]
        is_same_option = _key(option) == _key(there.options[other])
        if (
            is_same_option
            and (here.rank[here.table == table] == there.rank[there.table == other]).all()
        ):
            continue
        other_options += not is_same_option
        load, moved = here.load(without=table), there.load(only=other)
        here_ms = float(here.space.option_perf[table])
        there_ms = float(there.space.option_perf[other])
        tables.append(
            records.DifferentTable(
                table=here.names[table],
                here=described(option),
                there=described(there.options[other]),
                here_ms=here_ms,
                there_ms=there_ms,
                mean_ms=(here_ms - there_ms) / here.ranks,
                alone_ms=float((load.perf + moved.perf).max()),
                fits=bool((load.used + moved.used <= devices.storage).all()),
            )
        )
    return records.PlanDifference(
        variant=variant,
        slowest_ms=float(theirs.max()),
        mean_ms=float(theirs.mean()),
        by_options_ms=by_options,
        by_balance_ms=float(ours.max() - theirs.max()) - by_options,
        other_options=other_options,
        other_ranks=len(tables) - other_options,
        tables=tuple(sorted(tables, key=lambda table: (-abs(table.mean_ms), table.alone_ms))),
    )


def _key(option: ShardingOption) -> tuple[object, ...]:
    """Return the sharding type, the kernel and the shards' boxes, which identify an option."""
    boxes = [(shard.size, shard.offset) for shard in option.shards]
    return option.sharding_type, option.compute_kernel, boxes
