"""Why a plan is as it is: its heaviest rank, what each table's alternatives cost, what bounds it.

Everything here is by torchrec's own estimates, on the arrays of `search`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict

import numpy as np
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.types import Perf, ShardingOption
from torchrec.distributed.types import ShardingType

from harness.contract import Explanation, Question, UsageError
from planners.embedding.decision import Plan
from planners.embedding.explain.arguments import ARGUMENTS, Reasons, reasons
from planners.embedding.explain.comparison import against
from planners.embedding.explain.placed_plan import PlacedPlan, tables_of, written
from planners.embedding.explain.records import (
    Alternative,
    BoundExplained,
    BoundTable,
    Memory,
    PlacedShard,
    PlanExplained,
    RankExplained,
    TableExplained,
)
from planners.embedding.explain.replacement import KINDS, Obstacle, Placed, replace
from planners.embedding.explain.text import sections, sentences
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.quality import arrays
from planners.embedding.search.space import Devices, Floats, SearchSpace

PERF = ("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms", "prefetch_compute")
"""The components of torchrec's `Perf` that are in its total."""

# What is better by less than this share is better by rounding.
_ROUNDING = 1e-9

_NONE = Obstacle("")
_TYPES = {each.value for each in ShardingType}


def explain(problem: EmbeddingProblem, plan: Plan, question: Question[Plan]) -> Explanation:
    """Say why a valid plan is as it is.

    Raises:
        UsageError: there is no such rank.
    """
    found = explained(problem, plan, question)
    return Explanation(tuple(sentences(found)), tuple(sections(found, question.top)), asdict(found))


def explained(problem: EmbeddingProblem, plan: Plan, question: Question[Plan]) -> PlanExplained:
    """Work out the figures of an explanation.

    Raises:
        UsageError: there is no such rank.
    """
    space, devices = arrays(problem)
    placed = PlacedPlan.of(plan, devices.ranks)
    load = placed.load()
    slowest = int(load.perf.argmax())
    rank = slowest if question.rank is None else question.rank
    if not 0 <= rank < devices.ranks:
        raise UsageError(f"There is no rank {rank}; ranks are from 0 to {devices.ranks - 1}.")
    other = question.other_decision
    alternatives = _Alternatives(problem, space, devices, placed, rank)
    return PlanExplained(
        slowest_rank=slowest,
        slowest_ms=float(load.perf[slowest]),
        mean_ms=float(load.perf.mean()),
        ranks_ms=tuple(load.perf.tolist()),
        bound=_bound(space, devices, placed, reasons(space, devices)),
        memory=tuple(_memory(placed, devices)),
        rank=_rank(placed, rank),
        tables=tuple(alternatives.of(place) for place in _dearest(placed, rank)[: question.top]),
        against=against(placed, PlacedPlan.of(other, devices.ranks), devices, question.other)
        if other is not None
        else None,
    )


def _bound(
    space: SearchSpace, devices: Devices, placed: PlacedPlan, why: Reasons
) -> BoundExplained:
    numbers = tables_of(space)
    places = {numbers[fqn]: place for fqn, place in placed.by_fqn.items()}
    placed_ms = np.bincount(placed.table, placed.perf, len(placed.options))
    with_memory = why.cheapest
    if why.binding in ("memory", "hosts"):
        with_memory = np.where(why.relaxed >= 0, why.relaxed, why.cheapest)
    needed = space.option_storage[why.cheapest].sum(axis=0)
    usable = np.maximum(devices.storage, 0).sum(axis=0)
    tables = [
        BoundTable(
            placed.names[places[table]],
            written(space.options[cheapest]),
            float(space.option_perf[cheapest]),
            written(space.options[relaxed]),
            float(space.option_perf[relaxed]),
            written(placed.options[places[table]]),
            float(placed_ms[places[table]]),
        )
        for table, (cheapest, relaxed) in enumerate(
            zip(why.cheapest.tolist(), with_memory.tolist(), strict=True)
        )
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


def _memory(placed: PlacedPlan, devices: Devices) -> Iterator[Memory]:
    used = placed.load().used
    for place, kind in enumerate(KINDS):
        usable = devices.storage[:, place]
        if used[:, place].any():
            rank = int((used[:, place] / np.maximum(usable, 1)).argmax())
            yield Memory(kind, rank, int(used[rank, place]), int(usable[rank]))


def _parts(perf: Perf) -> dict[str, float]:
    return {name: float(getattr(perf, name)) for name in PERF}


def _rank(placed: PlacedPlan, rank: int) -> RankExplained:
    load = placed.load()
    whole = float(load.perf[rank])
    shards = [
        PlacedShard(
            table=name,
            sharding_type=option.sharding_type,
            compute_kernel=option.compute_kernel,
            size=(int(shard.size[0]), int(shard.size[1])),
            ms=float(shard.perf.total),
            share=float(shard.perf.total) / whole if whole else 0.0,
            perf_ms=_parts(shard.perf),
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


class _Alternatives:
    """What each table of a plan could be instead, with all others left where they are."""

    def __init__(
        self,
        problem: EmbeddingProblem,
        space: SearchSpace,
        devices: Devices,
        placed: PlacedPlan,
        rank: int,
    ) -> None:
        self._problem, self._space, self._devices = problem, space, devices
        self._placed, self._rank = placed, rank
        self._tables = tables_of(space)

    def of(self, place: int) -> TableExplained:
        """Return the alternatives of a table: as it is first, then those that help most."""
        placed, space = self._placed, self._space
        option = placed.options[place]
        others = placed.load(without=place)
        table = self._tables[option.fqn]
        together = int((space.group == space.group[table]).sum()) - 1
        number = placed.number_in(space, place)
        now = self._present(place)
        found = []
        for each in np.flatnonzero(space.table == table).tolist():
            outcome: Placed | Obstacle = Obstacle(
                f"torchrec places it together with {together} other tables"
            )
            if not together:
                outcome = replace(space, self._devices, others, each)
            if each == number and not _is_better(outcome, now):
                continue  # it is where it is
            found.append(self._alternative(each, outcome))
        found.sort(key=lambda each: (each.slowest_rank_ms is None, each.slowest_rank_ms or each.ms))
        return TableExplained(
            table=placed.names[place],
            rank_ms=float(placed.load(only=place).perf[self._rank]),
            alternatives=(now, *found),
            left_out=self._left_out(option),
        )

    def _present(self, place: int) -> Alternative:
        placed, load = self._placed, self._placed.load()
        option = placed.options[place]
        mine = placed.table == place
        return self._written(
            option, placed.perf[mine], placed.storage[mine].sum(0), load.perf, present=True
        )

    def _alternative(self, number: int, outcome: Placed | Obstacle) -> Alternative:
        space = self._space
        estimates = space.estimate[space.first_shard[number] : space.first_shard[number + 1]]
        return self._written(
            space.options[number],
            space.total[estimates],
            space.option_storage[number],
            outcome.load.perf if isinstance(outcome, Placed) else None,
            obstacle=outcome if isinstance(outcome, Obstacle) else _NONE,
        )

    def _written(
        self,
        option: ShardingOption,
        perf: Floats,
        storage: "np.ndarray[tuple[int], np.dtype[np.int64]]",
        load: Floats | None,
        present: bool = False,
        obstacle: Obstacle = _NONE,
    ) -> Alternative:
        return Alternative(
            sharding_type=option.sharding_type,
            compute_kernel=option.compute_kernel,
            shards=len(option.shards),
            ms=float(perf.sum()),
            largest_shard_ms=float(perf.max()),
            hbm_bytes=int(storage[0]),
            ddr_bytes=int(storage[1]),
            present=present,
            slowest_rank=None if load is None else int(load.argmax()),
            slowest_rank_ms=None if load is None else float(load.max()),
            this_rank_ms=None if load is None else float(load[self._rank]),
            why_not=obstacle.clause,
            lacking=obstacle.kind,
            needed_bytes=obstacle.needed,
            free_bytes=obstacle.free,
        )

    def _left_out(self, option: ShardingOption) -> Mapping[str, str]:
        """Say of the sharding types and kernels that were not enumerated for a table, why not."""
        device = self._problem.topology.compute_device
        sharder = next(
            (each for each in self._problem.sharders if each.module_type is type(option.module[1])),
            None,
        )
        constraint = self._problem.constraints.get(option.name)
        allowed_types = constraint.sharding_types if constraint else None
        allowed_kernels = constraint.compute_kernels if constraint else None
        offered: set[str] = set()
        kernels: set[str] = set()
        if sharder is not None:
            offered.update(sharder.sharding_types(device))
            kernels.update(
                kernel for each in offered for kernel in sharder.compute_kernels(each, device)
            )
        mine = [each for each in self._space.options if each.fqn == option.fqn]
        known = [
            *((each.value, offered, allowed_types) for each in ShardingType),
            *((each.value, kernels, allowed_kernels) for each in EmbeddingComputeKernel),
        ]
        there = {each.sharding_type for each in mine} | {each.compute_kernel for each in mine}
        return {
            name: (
                "its constraints do not allow it"
                if allowed and name not in allowed
                else "its sharder does not offer it"
                if name not in offer
                else "torchrec enumerates none here"
            )
            for name, offer, allowed in known
            if name not in there and (name in offer or name in _TYPES)
        }


def _is_better(outcome: Placed | Obstacle, now: Alternative) -> bool:
    return isinstance(outcome, Placed) and outcome.rating < (now.slowest_rank_ms or 0.0) * (
        1 - _ROUNDING
    )
