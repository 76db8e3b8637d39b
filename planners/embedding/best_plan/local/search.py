"""The local search: makes starting plans, improves them by annealing, and keeps the best plan."""

import math

import numpy as np

from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.best_plan.local.exchanges import balance
from planners.embedding.best_plan.local.regions import hosts_of_region, improve_regions
from planners.embedding.best_plan.local.rounds import WORK_AT_ONCE, construct, improve
from planners.embedding.best_plan.local.state import PENALTY, TARGET, State, local_tables, new_state
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Ints, Placement

_NO_TABLES = np.empty(0, np.int64)

# Doublings of the power of perf (first for all ranks, then for the slowest), and whether tables may
# get other options, which takes work for all ranks.
_BALANCED_WITH = ((0, False), (2, False), (2, True))
_MOST_PENALTY = 1e6  # so that memory comes before milliseconds
_NEAR = 0.004  # ranks within this part of the bound need no exchange; it is less than NEAR_ENOUGH
_GIANT = 0.25  # part of a rank's memory


class LocalSearch:
    """Improves plans that consist of candidates; the same seed and calls give the same plans.

    `bound` is a proven lower bound, `proposed` the outcome of torchrec's proposals.
    """

    def __init__(
        self, found: Candidates, bound: float, proposed: Found | NotFound, seed: int
    ) -> None:
        self._found, self._proposed, self._seed = found, proposed, seed
        self.tables = local_tables(found)
        self.bound = bound  # milliseconds; no plan has a lower rating
        self.rounds = self.starts = 0
        self.best: State | None = None
        self.best_rating = proposed.rating if isinstance(proposed, Found) else math.inf

    def restrict(self, found: Candidates) -> None:
        """Use fewer candidates from now on; existing states remain valid."""
        self._found = found
        self.tables = local_tables(found)._replace(slot=self.tables.slot)

    def start_at(self, options: Ints, work: int) -> State:
        """Return a plan with these options, shape (T,), placed one by one and slightly improved."""
        state = self._empty(doublings=0)
        construct(self.tables, state, self._order(options), options)
        self.improve(state, work, 0.7, 0.9, temperature=1.0)
        return state

    def balanced_start(self, options: Ints, work: int, giants_first: bool) -> State:
        """Return a plan with these options, balanced by exchanges of shards instead of rounds."""
        state = self._empty(doublings=0)
        construct(self.tables, state, self._order(options, giants_first), options)
        state.figures[TARGET], state.figures[PENALTY] = self._scale, _MOST_PENALTY
        for doublings, new_options in _BALANCED_WITH:
            balance(self.tables, state, doublings, work, self._goal, new_options)
        construct(self.tables, state, _NO_TABLES, state.chosen)  # records the plan if it fits
        self._record(state)
        return state

    def start_from(self, options: Ints, ranks: Ints) -> State:
        """Return a state with a plan: its options, and the rank of each of their shards."""
        state = self._empty(doublings=0)
        state.place(self.tables, self._found.space.table, options, ranks)
        construct(self.tables, state, _NO_TABLES, state.chosen)  # records the plan if it fits
        self._record(state)
        return state

    def start_that_fits(self, work: int, deadline: Deadline) -> State:
        """Return the proposed plan; if there is none, search until a plan fits or work runs out."""
        state = self._empty(doublings=0)
        if isinstance(self._proposed, Found):
            table_of = self._found.space.table
            state.place(self.tables, table_of, self._proposed.options, self._proposed.ranks)
            return state
        options = self._found.smallest
        state.figures[TARGET] = self._found.any_rating  # so memory alone decides
        construct(self.tables, state, self._order(options), options)
        while state.work[0] < work and state.best_rating == math.inf and not deadline.passed:
            self.improve(state, WORK_AT_ONCE // 8, 0.5, 0.5, temperature=1.0)
        return state

    def resume(self, start: State, doublings: int) -> State:
        """Return a new state with the best plan that `start` found, else with its current plan."""
        state = self._empty(doublings)
        state.chosen[:] = start.best_chosen if start.found else start.chosen
        state.ranks[:] = start.best_ranks if start.found else start.ranks
        return state

    def improve(
        self, state: State, work: int, begin: float, end: float, temperature: float
    ) -> None:
        """Improve a plan, as `rounds.improve` does, and record it if it is the best so far."""
        self.rounds += improve(self.tables, state, work, begin, end, temperature)
        self._record(state)

    def improve_regions(self, state: State, work: int, deadline: Deadline) -> None:
        """Improve a plan host by host, for `work` ratings of a rank at most, and record it."""
        random = np.random.default_rng([self._seed, self.starts])
        state.figures[TARGET], state.figures[PENALTY] = self._scale, _MOST_PENALTY
        improve_regions(self._found, self.tables, state, self._goal, work, random, deadline)
        self._record(state)

    @property
    def has_regions(self) -> bool:
        """Whether there are more hosts than in a region."""
        return self._found.devices.hosts > hosts_of_region(self.tables.host_ranks)

    def _record(self, state: State) -> None:
        if state.best_rating < self.best_rating:
            self.best, self.best_rating = state, state.best_rating

    def _empty(self, doublings: int) -> State:
        self.starts += 1
        seed = [self._seed, self.starts]
        return new_state(self.tables, seed, self.best_rating, self._scale, doublings)

    @property
    def _scale(self) -> float:
        """Milliseconds by which ranks' loads are scaled: the bound, or a fallback if it is 0."""
        return self.bound or float(self._found.largest.max()) or 1.0

    @property
    def _goal(self) -> float:
        """Milliseconds below which ranks need no improvement."""
        return self._scale * (1 + _NEAR)

    def _order(self, options: Ints, giants_first: bool = False) -> Ints:
        """Return the tables in placing order: most restricted placement first, then largest.

        If `giants_first`, blocks of rows come after the shards that take much of a rank's memory.
        Such shards then share few hosts, and blocks of rows, which need memory on all ranks of a
        host, get the others.
        """
        space = self._found.space
        first = space.estimate[space.first_shard[options]]
        parts = (space.storage[first] * self.tables.share.min(0)).max(1)
        size = np.maximum(parts, space.total[first] / self._scale)
        placement = space.placement[options]
        device = placement == Placement.DEVICE
        giant = device & (parts > _GIANT) & giants_first
        freedom = np.select([placement == Placement.UNIFORM, giant, device], [0, 1, 3], default=2)
        return np.lexsort((-size, freedom))
