"""Explains the placement of a table: each option that it has, and what forbids the others."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from torchrec.distributed.planner.types import ShardingOption
from torchrec.distributed.types import ShardingType

from harness.contract import Section
from planners.embedding.best_plan.parts import HOST, Parts, parts_of, places, rounds
from planners.embedding.explain.placed_plan import (
    KINDS,
    ROUNDING,
    PlacedPlan,
    gib,
    in_gib,
    ms,
)
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.search.space import Devices, Ints, Load, SearchSpace

_OF_OPTION = 7  # fields of an Alternative that do not depend on ranks

Obstacle = dict[str, Any]
"""What forbids an option: `why_not` and perhaps the fields after it of `Alternative`."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """An option of a table, with all other tables where they are; sums over its shards.

    If it is impossible, `why_not` has the reason, and the ranks' figures are None. If a kind of
    memory is `lacking`, a shard needs `needed_bytes`, and `free_bytes` are free where it may go.
    """

    sharding_type: str
    compute_kernel: str
    shards: int
    ms: float
    largest_shard_ms: float
    hbm_bytes: int
    ddr_bytes: int
    present: bool
    slowest_rank: int | None = None
    slowest_rank_ms: float | None = None
    this_rank_ms: float | None = None  # of the explained rank
    why_not: str = ""
    lacking: str = ""
    needed_bytes: int = 0
    free_bytes: int = 0

    @property
    def option(self) -> str:
        """The option as text."""
        return f"{self.shards} x {self.sharding_type} {self.compute_kernel}"

    @property
    def slowest_ms(self) -> float:
        """Milliseconds of the slowest rank; infinite if the option is impossible."""
        return math.inf if self.slowest_rank_ms is None else self.slowest_rank_ms

    def is_better_than(self, other: "Alternative") -> bool:
        """Whether it makes the slowest rank faster, by more than rounding."""
        return self.slowest_ms < other.slowest_ms * (1 - ROUNDING)


@dataclass(frozen=True, slots=True)
class TableExplained:
    """A table on a rank: its present option, then the alternatives, the best one first."""

    table: str
    rank_ms: float
    alternatives: tuple[Alternative, ...]
    left_out: tuple[str, ...]  # sharding types, and kernels of its sharder, without an option

    @property
    def best(self) -> Alternative:
        """The option with the fastest slowest rank; in a tie the present one."""
        least = min(self.alternatives, key=lambda option: option.slowest_ms)
        return least if least.is_better_than(self.alternatives[0]) else self.alternatives[0]


def table_explained(
    problem: EmbeddingProblem, space: SearchSpace, plan: PlacedPlan, rank: int, table: int
) -> TableExplained:
    """Explain a table of a plan, with all other tables where they are, as seen from a rank."""
    devices, option, others = plan.devices, plan.options[table], plan.without(table)
    parts = parts_of(space, devices)
    numbers = [number for number, other in enumerate(space.options) if other.fqn == option.fqn]
    now = _alternative(plan.space, table, plan.load, rank, present=True)
    alternatives = []
    for number in numbers:
        load = placed(space, devices, parts, others, number)
        other = _alternative(space, number, load, rank)
        # The present option is listed again only if other ranks are better for it.
        is_present = astuple(other)[:_OF_OPTION] == astuple(now)[:_OF_OPTION]
        if not is_present or other.is_better_than(now):
            alternatives.append(other)
    alternatives.sort(key=lambda other: (other.slowest_ms, other.ms if other.why_not else 0.0))
    return TableExplained(
        table=plan.names[table],
        rank_ms=float(plan.load_of(np.array([table])).perf[rank]),
        alternatives=(now, *alternatives),
        left_out=_left_out(problem, option, [space.options[number] for number in numbers]),
    )


def _alternative(
    space: SearchSpace, number: int, load: Load | Obstacle, rank: int, present: bool = False
) -> Alternative:
    """Return an option with the load of all ranks with it, or with what forbids it."""
    option, (hbm, ddr, _) = space.options[number], space.option_storage[number].tolist()
    if isinstance(load, Load):
        load = {
            "slowest_rank": int(load.perf.argmax()),
            "slowest_rank_ms": load.rating,
            "this_rank_ms": float(load.perf[rank]),
        }
    return Alternative(
        option.sharding_type,
        option.compute_kernel,
        len(space.estimates_of(number)),
        float(space.option_perf[number]),
        float(space.largest_shard[number]),
        *(hbm, ddr, present),
        **load,
    )


def placed(
    space: SearchSpace, devices: Devices, parts: Parts, others: Load, option: int
) -> Load | Obstacle:
    """Place an option on ranks with the load `others`; return the new load, or what forbids it.

    If all its parts must share a host, that is the host with the least resulting maximum load. The
    result is optimal if all shards are equal, else greedy.
    """
    together = int((space.group == space.group[space.table[option]]).sum()) - 1
    if together:
        return {"why_not": f"torchrec places it together with {together} other tables"}
    if parts.first[option] == parts.first[option + 1]:
        shards = f"its {len(space.estimates_of(option))} shards"
        hosts = f"{devices.hosts} hosts of {devices.host_ranks} ranks"
        return {"why_not": f"{shards} have no place on {hosts}"}
    choices = np.arange(devices.ranks)[np.newaxis]
    if parts.together[option]:
        choices = choices[:, : devices.hosts * devices.host_ranks].reshape(devices.hosts, -1)
    loads = [_placed_on(ranks, space, devices, parts, others, option) for ranks in choices]
    slowest = [
        float(load.perf[ranks].max()) if isinstance(load, Load) else math.inf
        for load, ranks in zip(loads, choices, strict=True)
    ]
    return loads[int(np.argmin(slowest))]


def _placed_on(
    allowed: Ints, space: SearchSpace, devices: Devices, parts: Parts, others: Load, option: int
) -> Load | Obstacle:
    """Place an option on some of the ranks.

    1. The parts of a run are placed from the most to the least expensive one.
    2. Each goes where there is enough memory and the resulting maximum load is least, on the lowest
       such ranks if several are equal.
    3. The host of a part is taken for the rest of the run.
    """
    load = Load(others.perf.copy(), others.used.copy())
    for run in rounds(parts, devices, option):
        free = places(parts, devices, run[0])
        free = free[np.isin(free, allowed).all(axis=1)]
        cost = space.total[space.estimate[parts.shard[run]]]
        for part in (run[place] for place in np.argsort(-cost, kind="stable").tolist()):
            first, size = parts.shard[part], parts.size[part]
            estimate = space.estimate[first : first + size]
            perf, needed = space.total[estimate], space.storage[estimate]
            left = devices.storage[free] - load.used[free]
            fits = (needed <= left).all(axis=(1, 2))
            if not fits.any():
                return _lacking(needed, left.max(axis=0))
            slowest = (load.perf[free] + perf).max(axis=1)
            best = int(np.where(fits, slowest, np.inf).argmin())
            load.perf[free[best]] += perf
            load.used[free[best]] += needed
            if parts.unit[part] == HOST:
                free = np.delete(free, best, axis=0)
    return load


def _lacking(needed: Ints, free: Ints) -> Obstacle:
    """Return an obstacle that names the first kind of memory without enough free bytes.

    Both have the bytes of HBM, DDR and SSD of each shard of a part, shape (size, 3): what it needs,
    and the most that are free on any of its ranks.
    """
    short = (needed > free).any(axis=0)
    if not short.any():
        return {"why_not": "no rank has enough of each kind of memory free"}
    kind = int(short.argmax())
    shard = int((needed - free)[:, kind].argmax())
    wanted, left = int(needed[shard, kind]), max(int(free[shard, kind]), 0)
    return {
        "why_not": f"a shard needs {gib(wanted)} GiB of {KINDS[kind]}, and {gib(left)} are free "
        "where it may go",
        "lacking": KINDS[kind],
        "needed_bytes": wanted,
        "free_bytes": left,
    }


def _left_out(
    problem: EmbeddingProblem, option: ShardingOption, enumerated: Iterable[ShardingOption]
) -> tuple[str, ...]:
    """Return the sharding types and kernels that no option of the table has."""
    device = problem.topology.compute_device
    sharder = {s.module_type: s for s in problem.sharders}[type(option.module[1])]
    names = [kind.value for kind in ShardingType]
    for name in sharder.sharding_types(device):
        names += sharder.compute_kernels(name, device)
    there = {name for other in enumerated for name in (other.sharding_type, other.compute_kernel)}
    return tuple(dict.fromkeys(name for name in names if name not in there))


def options_section(table: TableExplained, rank: int) -> Section:
    """Return a table of the possible alternatives, and what forbids others, for readers."""
    return Section(
        f"Alternatives for {table.table}, now {ms(table.rank_ms)} of rank {rank}",
        (
            *("option", "ms", "largest\nshard", "HBM\nGiB", "DDR\nGiB"),
            *(f"rank {rank}\nthen", "slowest\nthen"),
        ),
        tuple(
            (
                option.option + (" (now)" if option.present else ""),
                *(option.ms, option.largest_shard_ms),
                *(in_gib(option.hbm_bytes), in_gib(option.ddr_bytes)),
                *(option.this_rank_ms, option.slowest_rank_ms),
            )
            for option in table.alternatives
            if not option.why_not
        ),
        tuple(_remarks(table.alternatives)),
    )


def _remarks(alternatives: Iterable[Alternative]) -> Iterator[str]:
    """Yield a remark for each reason, with the options that it makes impossible."""
    options = defaultdict[str, list[str]](list)
    for other in alternatives:
        if other.lacking:
            why = (
                f"Not possible, since a shard needs more {other.lacking} than the "
                f"{gib(other.free_bytes)} GiB that are free on its ranks"
            )
            options[why].append(f"{other.option} ({gib(other.needed_bytes)} GiB)")
        elif other.why_not:
            options[f"Not possible, since {other.why_not}"].append(other.option)
    for why, several in options.items():
        yield f"{why}: {', '.join(several)}."
