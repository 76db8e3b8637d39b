"""The state of the local search, laid out for compiled code."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.search.space import Floats, Floats2, Ints, Ints2

NOWHERE = 1e300
"""More than any plan rates or costs."""

BEST, TARGET, PENALTY, BOUND, PRICE, BUDGET, MOVED = 0, 1, 2, 3, 4, 5, 6
"""The places of a state's figures."""

MOST_REMOVED = 12
"""The most tables that are taken out at once."""

_FIRST_PENALTY = 1000.0
_FARTHEST_TARGET = 1.15  # of the bound
_LEAST_TARGET = 0.3  # of the best plan


class Tables(NamedTuple):
    """The tables to be placed; option numbers and shards are those of the search space."""

    options: Ints  # the candidates, table after table
    first: Ints  # where those of each table begin
    size: Floats  # of each table: the memory that its options take at least, in parts of all
    slot: Ints  # where the ranks of each table's shards begin
    first_shard: Ints
    estimate: Ints
    storage: Ints2
    total: Floats
    placement: Ints
    largest: Floats  # of each option
    capacity: Ints2  # shape (ranks, 3)
    share: Floats2  # 1 / capacity; what holds nothing counts as one byte
    host_ranks: int
    home: Ints  # the rank that each shard was on, or -1; empty where nothing is said of moves
    weight: Ints  # bytes that each shard moves anywhere else


class State(NamedTuple):
    """A plan that is being changed, and the best one so far."""

    chosen: Ints  # the option of each table
    ranks: Ints  # of its shards, from the table's slot on
    perf: Floats  # of each rank
    memory: Ints2  # of each rank, shape (ranks, 3)
    cost: Floats  # of each rank
    scratch: Ints
    picked: Ints  # the tables that are taken out, shape (MOST_REMOVED,)
    kept_options: Ints  # and what is needed to undo that
    kept_ranks: Ints2
    kept_perf: Floats
    kept_memory: Ints2
    kept_cost: Floats
    taken: Ints  # shards of one option by host, shape (hosts,)
    best_chosen: Ints
    best_ranks: Ints
    figures: Floats  # best rating, target, penalty, bound; price of a byte, budget, bytes moved
    random: npt.NDArray[np.uint64]
    doublings: Ints  # the power of perf is 12 times 2 to this, shape (1,)
    work: Ints  # how often a rank has been rated so far, shape (1,)

    @property
    def best_rating(self) -> float:
        """Milliseconds of the best plan, or of what it has to better; infinite without either."""
        best = float(self.figures[BEST])
        return best if best < NOWHERE else math.inf


def local_tables(found: Candidates) -> Tables:
    """Lay candidates out for the local search."""
    space, storage = found.space, found.devices.storage
    most = np.maximum.reduceat(np.diff(space.first_shard)[found.options], found.first[:-1])
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
    )


def new_state(
    tables: Tables, seed: Sequence[int], best: float, bound: float, doublings: int
) -> State:
    """Return a state with nothing placed.

    It is to search for plans that rate less than `best`, where none rates less than `bound`. The
    power of perf is doubled `doublings` times.
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
        random=random.integers(1, 2**63, 1, np.uint64),  # xorshift never leaves zero
        doublings=np.array([doublings], np.int64),
        work=np.zeros(1, np.int64),
    )


def target_of(best: float, bound: float) -> float:
    """Return what to aim at: between the best plan and the bound, and not far above the bound.

    Nor far below the best plan: a rank that is many times the target costs more than any memory
    that is missing.
    """
    target = min(0.5 * (best + bound), _FARTHEST_TARGET * bound)
    return target if best >= NOWHERE else max(target, _LEAST_TARGET * best)
