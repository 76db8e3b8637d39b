"""The local search: starts from given or relaxed plans, improves them, and keeps the best plan."""

import math
from collections.abc import Callable

import numpy as np

from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.best_plan.insertion import Count, Figure, Plan, State, Tables
from planners.embedding.best_plan.rounds import (
    KEEPING_SOME,
    MOST_REMOVED,
    SAMPLE,
    search,
    target_of,
)
from planners.embedding.plan_files.table import Moves
from planners.embedding.search.outcome import Found
from planners.embedding.search.space import Ints, Placement, load_of

WORK_AT_ONCE = 4_000_000
"""Work between two looks at the clock, some 30 ms."""

_TABLES_AT_FULL_HEAT = 32
"""With more tables the heat is less in proportion: a round changes a smaller part of the cost."""

_MUCH_MEMORY = 0.25
"""A shard that takes more than this part of a rank's memory leaves its host little for rows."""

_NO_TABLES = np.empty(0, np.int64)


class LocalSearch:
    """Improves plans that consist of candidates; the same seed and calls give the same plans.

    `bound` is a proven lower bound in milliseconds. With `moves`, plans move at most `budget` bytes
    from a previous plan. `best` is the best plan given or found.
    """

    def __init__(
        self,
        candidates: Candidates,
        bound: float,
        seed: int,
        best: Found | None = None,
        moves: Moves | None = None,
    ) -> None:
        self._candidates, self._seed = candidates, seed
        self.bound, self.best, self.budget = bound, best, math.inf
        self.rounds = self.starts = 0
        self._many_ranks = candidates.devices.ranks > SAMPLE
        self.tables = local_tables(candidates, moves)

    @property
    def best_rating(self) -> float:
        """Milliseconds of the best plan; infinite if there is none."""
        return self.best.rating if self.best else math.inf

    def restrict(self, candidates: Candidates) -> None:
        """Use fewer candidates from now on; existing states remain valid."""
        self._candidates = candidates
        slot, owner = self.tables.slot, self.tables.owner
        self.tables = local_tables(candidates)._replace(slot=slot, owner=owner)

    def start_at(self, options: Ints) -> State:
        """Return a plan with these options, shape (T,), each placed where it adds least cost."""
        state = self._empty(0)
        if self._many_ranks:
            state.counts[Count.KEEPING] = 2**40  # all keep theirs until a plan fits
        self._search(state, self._order(options), options)
        return state

    def start_from(self, options: Ints, ranks: Ints, doublings: int = 0) -> State:
        """Return a plan with these options and the ranks of their shards, option by option.

        Tables without an option are placed where they add least cost, the largest first.
        """
        state, space = self._empty(doublings), self._candidates.space
        ends = np.cumsum(np.diff(space.first_shard)[options])
        for option, on in zip(options.tolist(), np.split(ranks, ends[:-1]), strict=False):
            table = space.table[option]
            state.plan.options[table] = option
            if space.placement[option] != Placement.UNIFORM:
                slot = self.tables.slot[table]
                state.plan.ranks[slot : slot + len(on)] = on
        missing = np.flatnonzero(state.plan.options < 0)
        order = missing[np.argsort(-self.tables.size[missing], kind="stable")]
        self._search(state, order, np.full_like(state.plan.options, -1))
        return state

    def start_that_fits(self, work: int, ended: Callable[[], bool]) -> State:
        """Return the first plan that fits, or one that nearly fits if work runs out before."""
        state, options = self._empty(0), self._candidates.smallest
        state.figures[Figure.TARGET] = self._candidates.any_rating  # so memory alone decides
        self._search(state, self._order(options), options)
        self.run(state, work, 0.5, lambda: self.best is not None or ended())
        return state

    def resume(self, state: State, doublings: int) -> State:
        """Return a new state with the best plan that a state found, else with its current plan."""
        return self.start_from(*plan_of(self.tables, state), doublings)

    def run(
        self,
        state: State,
        work: float,
        heat: float,
        ended: Callable[[], bool],
    ) -> None:
        """Improve a plan for `work` ratings of a rank, or until `ended` is true.

        The accepted rise in cost, relative to the cost, falls linearly from `heat` to 0.
        """
        heat *= min(1.0, _TABLES_AT_FULL_HEAT / len(state.plan.options))
        started = int(state.counts[Count.WORK])
        while (done := int(state.counts[Count.WORK]) - started) < work and not ended():
            more = math.ceil(min(WORK_AT_ONCE, work - done))
            hot, cold = heat * (1 - done / work), heat * max(1 - (done + more) / work, 0.0)
            self._search(state, _NO_TABLES, _NO_TABLES, more, hot, cold)

    def _search(
        self,
        state: State,
        order: Ints,
        options: Ints,
        work: int = 0,
        hot: float = 0.0,
        cold: float = 0.0,
    ) -> None:
        """Call `rounds.search`, and record the state's plan if it is the best so far."""
        before = state.figures[Figure.BEST]
        self.rounds += search(self.tables, state, order, options, work, hot, cold)
        if state.figures[Figure.BEST] < min(before, self.best_rating):
            plan, space = plan_of(self.tables, state), self._candidates.space
            rating = load_of(space, *plan, len(state.perf)).rating
            if rating < self.best_rating:
                self.best = Found(*plan, rating, 0, 0)

    def _empty(self, doublings: int) -> State:
        """Return a state with nothing placed, for a search for plans better than the best one.

        The exponent of perf in the cost is 12 * 2**doublings.
        """
        self.starts += 1
        tables, best = self.tables, self.best_rating
        count, ranks, shards = len(tables.first) - 1, len(tables.capacity), tables.slot[-1]
        scale = self.bound or float(self._candidates.largest.max()) or 1.0
        figures = np.zeros(len(Figure))
        figures[Figure.BEST], figures[Figure.TARGET] = best, target_of(best, scale)
        figures[Figure.BOUND], figures[Figure.BUDGET] = scale, self.budget
        figures[Figure.PENALTY] = 1000.0  # high enough that the first plan fits; tuned later
        figures[Figure.PRICE] = 1.0 / max(float(tables.weight.max(initial=0)), 1.0)
        counts = np.zeros(len(Count), np.int64)
        counts[Count.DOUBLINGS] = doublings
        counts[Count.KEEPING] = KEEPING_SOME if self._many_ranks else 1
        random = np.random.default_rng([self._seed, self.starts])
        plan, kept, best_plan = (
            Plan(np.full(count, -1, np.int64), np.zeros(shards, np.int64)) for _ in range(3)
        )
        return State(
            plan=plan,
            kept=kept,
            best=best_plan,
            perf=np.zeros(ranks),
            memory=np.zeros((ranks, 3), np.int64),
            cost=np.zeros(ranks),
            first_on=np.zeros(ranks, np.int64),
            following=np.zeros(shards, np.int64),
            taken=np.zeros(ranks, np.int64),
            near=np.zeros((3, ranks), np.int64),
            near_count=np.zeros(3, np.int64),
            picked=np.zeros(MOST_REMOVED, np.int64),
            figures=figures,
            counts=counts,
            random=random.integers(1, 2**63, 1, np.uint64),  # xorshift would stay at 0
        )

    def _order(self, options: Ints) -> Ints:
        """Return the tables in placing order: most restricted placement first, then largest."""
        space = self._candidates.space
        first = space.estimate[space.first_shard[options]]
        parts = (space.storage[first] * self.tables.share.min(0)).max(1)
        size = np.maximum(parts, space.total[first] / (self.bound or 1.0))
        placement = space.placement[options]
        everywhere, device = placement == Placement.UNIFORM, placement == Placement.DEVICE
        # On many ranks, shards that take much of a rank first fill few hosts, since of equally
        # cheap ranks each gets the first one; parts of whole hosts get the others.
        first_on_few = device & (parts > _MUCH_MEMORY) & self._many_ranks
        order = np.select([everywhere, first_on_few, device], [0, 1, 3], default=2)
        return np.lexsort((-size, order))


def local_tables(candidates: Candidates, moves: Moves | None = None) -> Tables:
    """Return the arrays of the local search for some candidates and moves from a previous plan."""
    space, storage = candidates.space, candidates.devices.storage
    counts = np.where(space.placement == Placement.UNIFORM, 0, np.diff(space.first_shard))
    most = np.maximum.reduceat(counts[candidates.options], candidates.first[:-1])
    part = (space.option_storage / np.maximum(storage.sum(axis=0), 1)).sum(axis=1)
    return Tables(
        options=candidates.options,
        first=candidates.first,
        size=part[candidates.smallest],
        slot=np.concatenate([[0], np.cumsum(most)]),
        first_shard=space.first_shard,
        estimate=space.estimate,
        storage=space.storage,
        total=space.total,
        placement=space.placement,
        largest=space.largest_shard,
        capacity=storage,
        share=1.0 / np.maximum(storage, 1),
        host_ranks=candidates.devices.host_ranks,
        home=moves.home if moves else _NO_TABLES,
        weight=moves.weight if moves else _NO_TABLES,
        everywhere=np.arange(len(storage)),
        owner=np.repeat(np.arange(len(most)), most),
    )


def plan_of(tables: Tables, state: State) -> tuple[Ints, Ints]:
    """Return a state's best plan, else the current one: options, and the ranks of their shards."""
    options, ranks = state.best if state.best.options[0] >= 0 else state.plan
    counts = np.diff(tables.first_shard)[options].tolist()
    uniform = tables.placement[options] == Placement.UNIFORM
    slots = zip(tables.slot.tolist(), counts, uniform.tolist(), strict=False)
    on = [tables.everywhere if u else ranks[slot : slot + count] for slot, count, u in slots]
    return options.copy(), np.concatenate(on)
