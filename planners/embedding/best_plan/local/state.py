"""The state of the local search and its tables, as arrays for compiled code."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.search.space import Floats, Floats2, Ints, Ints2, Placement

NOWHERE = 1e300
"""A number above the rating and the cost of any plan."""

BEST, TARGET, PENALTY, BOUND, PRICE, BUDGET, MOVED = 0, 1, 2, 3, 4, 5, 6
"""Indices of `State.figures`."""

MOST_REMOVED = 12
"""A round takes out at most this number of tables; with more, few rounds improve anything."""

_FIRST_PENALTY = 1000.0  # high enough that the first plan fits; tuned later
# Highest target, times the bound: if memory is scarce, a lower one is out of reach; higher is easy.
_FARTHEST_TARGET = 1.15
# Lowest target, times the best rating: far above a target, perf would outweigh missing memory.
_LEAST_TARGET = 0.3


class Tables(NamedTuple):
    """The tables to place; numbers, and fields without a comment, are those of SearchSpace."""

    options: Ints  # the candidates' option numbers, table by table
    first: Ints  # the index of each table's first candidate
    size: Floats  # memory of each table's smallest option, as a part of all memory
    slot: Ints  # the index of each table's first shard in `State.ranks`, if it is not on all ranks
    first_shard: Ints
    estimate: Ints
    storage: Ints2
    total: Floats
    placement: Ints
    largest: Floats  # milliseconds of each option's most expensive shard
    capacity: Ints2  # bytes of HBM, DDR and SSD of each rank, shape (ranks, 3)
    share: Floats2  # 1 / capacity; a capacity of 0 counts as one byte
    host_ranks: int
    home: Ints  # the previous rank of each shard, or -1; empty without a previous plan
    weight: Ints  # bytes moved if a shard is on any rank but its home
    everywhere: Ints  # all ranks: those of the shards of each uniform option


class State(NamedTuple):
    """The current plan of a local search, and the best plan that it has found."""

    chosen: Ints  # the option of each table
    ranks: Ints  # the rank of each shard that is not of a uniform option; table t's from slot[t]
    perf: Floats  # milliseconds of each rank
    memory: Ints2  # bytes used on each rank, shape (ranks, 3)
    cost: Floats  # the cost of each rank (see local.ranks)
    scratch: Ints
    picked: Ints  # the tables that a round removes, shape (MOST_REMOVED,)
    kept_options: Ints  # this and the next four arrays undo a round
    kept_ranks: Ints2
    kept_perf: Floats
    kept_memory: Ints2
    kept_cost: Floats
    taken: Ints  # number of one option's blocks on each host, shape (hosts,)
    best_chosen: Ints
    best_ranks: Ints
    figures: Floats  # best rating, target, penalty, bound; price of a byte, budget, bytes moved
    random: npt.NDArray[np.uint64]
    doublings: Ints  # the exponent of perf in the cost is 12 * 2**doublings, shape (1,)
    work: Ints  # number of ratings of a rank so far, shape (1,)

    @property
    def best_rating(self) -> float:
        """Milliseconds of the best plan found or given to beat; infinite if there is neither."""
        best = float(self.figures[BEST])
        return best if best < NOWHERE else math.inf

    @property
    def found(self) -> bool:
        """Whether this search has found a plan better than the one it was given to beat."""
        return bool(self.best_chosen[0] >= 0)

    def best_plan(self, tables: Tables) -> tuple[Ints, Ints]:
        """Return the best plan: the option of each table, and the rank of each of their shards."""
        counts = np.diff(tables.first_shard)[self.best_chosen].tolist()
        uniform = tables.placement[self.best_chosen] == Placement.UNIFORM
        slots = zip(tables.slot.tolist(), counts, uniform.tolist(), strict=False)
        ranks = [
            tables.everywhere if everywhere else self.best_ranks[slot : slot + count]
            for slot, count, everywhere in slots
        ]
        return self.best_chosen.copy(), np.concatenate(ranks)

    def place(self, tables: Tables, table_of: Ints, options: Ints, ranks: Ints) -> None:
        """Set some tables' options, and their shards' ranks as a flat array, option by option."""
        ends = np.cumsum(np.diff(tables.first_shard)[options])
        for option, on in zip(options.tolist(), np.split(ranks, ends[:-1]), strict=False):
            table = table_of[option]
            self.chosen[table] = option
            if tables.placement[option] != Placement.UNIFORM:
                self.ranks[tables.slot[table] : tables.slot[table] + len(on)] = on


def local_tables(found: Candidates) -> Tables:
    """Return the arrays of the local search for some candidates, without a previous plan."""
    space, storage = found.space, found.devices.storage
    counts = np.where(space.placement == Placement.UNIFORM, 0, np.diff(space.first_shard))
    most = np.maximum.reduceat(counts[found.options], found.first[:-1])
    part = (found.space.option_storage / np.maximum(storage.sum(axis=0), 1)).sum(axis=1)
    return Tables(
        options=found.options,
        first=found.first,
        size=part[found.smallest],
        slot=np.concatenate([[0], np.cumsum(most)]),
        first_shard=space.first_shard,
        estimate=space.estimate,
        storage=space.storage,
        total=space.total,
        placement=space.placement,
        largest=space.largest_shard,
        capacity=storage,
        share=1.0 / np.maximum(storage, 1),
        host_ranks=found.devices.host_ranks,
        home=np.empty(0, np.int64),
        weight=np.empty(0, np.int64),
        everywhere=np.arange(len(storage)),
    )


def new_state(
    tables: Tables, seed: Sequence[int], best: float, bound: float, doublings: int
) -> State:
    """Return a state with nothing placed, for a search for plans with a rating below `best`.

    `bound` is a lower bound on all ratings. The exponent of perf in the cost is 12 * 2**doublings.
    """
    count, ranks = len(tables.first) - 1, len(tables.capacity)
    shards, most_shards = tables.slot[-1], int(np.diff(tables.slot).max())
    best = min(best, NOWHERE)
    random = np.random.default_rng(seed)
    return State(
        chosen=np.full(count, -1, np.int64),
        ranks=np.zeros(shards, np.int64),
        perf=np.zeros(ranks),
        memory=np.zeros((ranks, 3), np.int64),
        cost=np.zeros(ranks),
        scratch=np.zeros(most_shards, np.int64),
        picked=np.zeros(MOST_REMOVED, np.int64),
        kept_options=np.zeros(MOST_REMOVED, np.int64),
        kept_ranks=np.zeros((MOST_REMOVED, most_shards), np.int64),
        kept_perf=np.zeros(ranks),
        kept_memory=np.zeros((ranks, 3), np.int64),
        kept_cost=np.zeros(ranks),
        taken=np.zeros(ranks // tables.host_ranks, np.int64),
        best_chosen=np.full(count, -1, np.int64),
        best_ranks=np.zeros(shards, np.int64),
        figures=np.array([best, target_of(best, bound), _FIRST_PENALTY, bound, 0.0, NOWHERE, 0.0]),
        random=random.integers(1, 2**63, 1, np.uint64),  # xorshift would stay at 0
        doublings=np.array([doublings], np.int64),
        work=np.zeros(1, np.int64),
    )


def target_of(best: float, bound: float) -> float:
    """Return the rating to aim for: halfway between best rating and bound, within limits."""
    target = min(0.5 * (best + bound), _FARTHEST_TARGET * bound)
    return target if best >= NOWHERE else max(target, _LEAST_TARGET * best)
