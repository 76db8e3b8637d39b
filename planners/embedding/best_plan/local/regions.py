"""Improves plans on many ranks by local search on a few hosts at a time.

A round of the local search rates all ranks for each shard that it places. In a region, the
costliest host and some random ones, it rates tens of ranks instead of thousands.
"""

from dataclasses import dataclass

import numpy as np

from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.best_plan.local.rounds import construct, improve
from planners.embedding.best_plan.local.state import (
    PENALTY,
    State,
    Tables,
    local_tables,
    new_state,
)
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Devices, Ints, Placement, SearchSpace

_RANKS = 32  # of a region that has more than two hosts
_WORK_PER_TABLE_AND_RANK = 400  # of a region
_TRIES = 8  # regions of a host without success; then it is left alone, until regions are larger
_TEMPERATURE, _DOUBLINGS, _PENALTY = 1.0, 2, 1e6
_NO_TABLES = np.empty(0, np.int64)


def hosts_of_region(host_ranks: int) -> int:
    """Return the number of hosts in a region."""
    return max(2, _RANKS // host_ranks)


def improve_regions(
    found: Candidates,
    tables: Tables,
    state: State,
    goal: float,
    work: int,
    random: np.random.Generator,
    deadline: Deadline,
) -> None:
    """Improve regions until no host is above `goal` ms or its memory.

    Regions double when none helps any more. It ends earlier if none helps then, after `work`
    ratings of a rank, or at the deadline. There must be more hosts than in the first region.
    """
    hosts, host_ranks = len(state.taken), tables.host_ranks
    by_host = np.arange(hosts * host_ranks).reshape(hosts, host_ranks)
    failures = np.zeros(hosts, np.int64)
    size = hosts_of_region(host_ranks)
    while work > 0 and not deadline.passed:
        over = (state.perf > goal) | (state.memory > tables.capacity).any(axis=1)
        cost = np.where(over[by_host].any(axis=1), state.cost[by_host].max(axis=1), -1.0)
        cost[failures >= _TRIES] = -1.0
        worst = int(cost.argmax())
        if cost[worst] < 0:
            if 2 * size > hosts or not over[by_host].any():
                break
            failures[:], size = 0, 2 * size
            continue
        others = np.delete(np.arange(hosts), worst)
        others = random.choice(others, size - 1, replace=False)
        region = _Region.of(found, tables, state, np.append(others, worst))
        own = region.searched(state, goal, int(random.integers(2**32)))
        work -= int(own.work[0])
        if region.replace(tables, state, own):
            construct(tables, state, _NO_TABLES, state.chosen)  # records the plan if it is the best
            failures[[*others, worst]] = 0
        else:
            failures[worst] += 1


@dataclass(frozen=True, slots=True)
class _Region:
    """Some hosts of a plan as a problem of its own.

    Tables with all their shards on these hosts can be placed anew. All other shards stay where they
    are: they form one more table, with one option, which is on all ranks of the region.
    """

    ranks: Ints  # of these hosts, shape (R,)
    movable: Ints  # the tables that can be placed anew, shape (M,)
    options: Ints  # the numbers of their options in the whole search space, shape (O - 1,)
    tables: Tables  # M + 1 tables with all O options
    on: Ints  # the current rank in the region of each shard of the movable tables

    @classmethod
    def of(cls, found: Candidates, tables: Tables, state: State, hosts: Ints) -> "_Region":
        space, chosen = found.space, state.chosen
        ranks = (hosts[:, None] * tables.host_ranks + np.arange(tables.host_ranks)).ravel()
        inside = np.full(len(state.perf), -1)
        inside[ranks] = np.arange(len(ranks))
        counts = np.where(_stays_in_region(space, chosen), np.diff(space.first_shard)[chosen], 0)
        table = np.repeat(np.arange(len(chosen)), counts)
        within = inside[state.ranks[_ranges(tables.slot[:-1], counts)]] >= 0
        inner = np.bincount(table[within], minlength=len(chosen))
        movable = np.flatnonzero((inner == counts) & (counts > 0))
        on = inside[state.ranks[_ranges(tables.slot[movable], counts[movable])]]
        first = space.first_shard[chosen[movable]]
        estimates = space.estimate[_ranges(first, counts[movable])]
        perf = state.perf[ranks] - np.bincount(on, space.total[estimates], len(ranks))
        memory = state.memory[ranks]
        np.subtract.at(memory, on, space.storage[estimates])
        listed = _ranges(found.first[movable], np.diff(found.first)[movable])
        options = found.options[listed]
        options = np.union1d(options[_stays_in_region(space, options)], chosen[movable])
        options = options[np.argsort(space.table[options], kind="stable")]
        devices = Devices(
            tables.capacity[ranks], found.devices.local_ranks, found.devices.host_ranks
        )
        part = _part_of(space, movable, options, np.maximum(perf, 0.0), memory)
        first = np.searchsorted(part.table, np.arange(len(movable) + 2))
        usable = np.ones(len(ranks), bool)
        problem = Candidates(part, devices, usable, np.arange(len(options) + 1), first)
        return cls(ranks, movable, options, local_tables(problem), on)

    def searched(self, state: State, goal: float, seed: int) -> State:
        """Search for a plan of the region with a lower rating than now, or for one that fits."""
        tables = self.tables
        rating = np.inf if self._missing(state.memory[self.ranks]) else state.perf[self.ranks].max()
        own = new_state(tables, [seed], rating, goal, _DOUBLINGS)
        own.figures[PENALTY] = _PENALTY
        own.chosen[:-1] = np.flatnonzero(np.isin(self.options, state.chosen[self.movable]))
        own.chosen[-1] = len(self.options)
        counts = np.diff(tables.first_shard)[own.chosen[:-1]]
        own.ranks[_ranges(tables.slot[:-2], counts)] = self.on
        work = _WORK_PER_TABLE_AND_RANK * len(own.chosen) * len(self.ranks)
        improve(tables, own, work, 0.0, 1.0, _TEMPERATURE)
        return own

    def replace(self, tables: Tables, state: State, own: State) -> bool:
        """Put the region's plan into the plan of all hosts if it is better; return whether it is.

        A plan that still does not fit is better if less memory is missing.
        """
        if own.found:
            chosen, placed = own.best_chosen[:-1], own.best_ranks
        elif self._missing(own.memory) < self._missing(state.memory[self.ranks]):
            chosen, placed = own.chosen[:-1], own.ranks
        else:
            return False
        slots = self.tables.slot[:-2]
        counts = np.diff(self.tables.first_shard)[chosen]
        state.chosen[self.movable] = self.options[chosen]
        after = self.ranks[placed[_ranges(slots, counts)]]
        state.ranks[_ranges(tables.slot[self.movable], counts)] = after
        return True

    def _missing(self, memory: Ints) -> float:
        """Return the memory that is missing, in parts of a rank."""
        storage = self.tables.capacity
        return float((np.maximum(memory - storage, 0) / np.maximum(storage, 1)).sum())


def _part_of(
    space: SearchSpace, movable: Ints, options: Ints, perf: np.ndarray, memory: Ints
) -> SearchSpace:
    """Return some tables with some options, and a table with this load on each rank."""
    counts = np.diff(space.first_shard)[options]
    shards = space.estimate[_ranges(space.first_shard[options], counts)]
    known, estimate = np.unique(shards, return_inverse=True)
    ranks = np.arange(len(perf))
    return SearchSpace(
        options=(),
        table=np.append(np.searchsorted(movable, space.table[options]), len(movable)),
        first_shard=np.cumsum([0, *counts, len(ranks)]),
        estimate=np.concatenate([estimate, len(known) + ranks]),
        storage=np.concatenate([space.storage[known], memory]),
        perf=np.empty((0, 5)),
        total=np.concatenate([space.total[known], perf]),
        placement=np.append(space.placement[options], Placement.UNIFORM),
        group=np.arange(len(movable) + 1),
        module=np.zeros(len(movable) + 1, np.int64),
        option_storage=np.concatenate([space.option_storage[options], [memory.sum(axis=0)]]),
        option_perf=np.append(space.option_perf[options], perf.sum()),
        largest_shard=np.append(space.largest_shard[options], 0.0),  # no plan is without it
    )


def _stays_in_region(space: SearchSpace, options: Ints) -> np.ndarray:
    """Whether options can be placed on any hosts; torchrec's order of hosts limits grid_shard."""
    anywhere = (Placement.DEVICE, Placement.HOST_ROWS, Placement.HOST_COLUMNS)
    return np.isin(space.placement[options], anywhere)


def _ranges(start: Ints, counts: Ints) -> Ints:
    """Return all numbers start[i] to start[i] + counts[i] - 1, for each i in turn."""
    ends = np.cumsum(counts)
    return np.repeat(start - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0)
