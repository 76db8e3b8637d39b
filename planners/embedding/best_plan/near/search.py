"""The search for the best plan that moves little of another one.

It goes on from that plan: the local search puts a price on every byte that moves, and raises and
lowers it so that plans stay about within the budget. Some runs begin at the best plan without a
budget, and are drawn back.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from planners.embedding.best_plan.bounds.bound import linear_bound
from planners.embedding.best_plan.local.rounds import complete, improve
from planners.embedding.best_plan.local.runs import NEAR_ENOUGH
from planners.embedding.best_plan.local.state import (
    BUDGET,
    PRICE,
    State,
    local_tables,
    new_state,
)
from planners.embedding.best_plan.near.bound import near_bound
from planners.embedding.best_plan.near.moves import (
    Moves,
    previous_options,
    shards_of,
    with_previous,
)
from planners.embedding.best_plan.search import (
    best_plan,
    can_be_placed_locally,
    canonical_order,
    usual_work,
)
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Devices, SearchSpace, search_space

# The runs for a budget: whether one begins at the best plan within it, its temperature, and how
# often the power of perf is doubled.
_RUNS = ((True, 0.1, 2), (False, 0.1, 1), (True, 1.0, 0), (True, 0.1, 2))
_TABLES_AT_FULL_HEAT = 32
_WORK_AT_ONCE = 4_000_000  # the clock is looked at in between

# The least move is looked for by halving what the budget can be, each time with a part of the work.
_HALVINGS = 12
_WORK_OF_HALVING = 0.1

_SHARE_WITHOUT_BUDGET = 0.4  # of a time limit, for the best plan without a budget


@dataclass(frozen=True, slots=True)
class NearPlan:
    """A plan, and the bytes that it moves.

    They are more than the budget where no plan was found within it. It is then the least move that
    was found.
    """

    found: Found
    bytes: int
    bound_ms: (
        float  # that no plan rates below which moves as much, or as the budget if that is more
    )


class NearSearch:
    """Searches for the best plans within budgets of bytes to move, for one after the other.

    `moves` says of a search space where each shard was. Budgets that rise go on from the plans of
    those before, and so more of it is never worse; the largest ends at the best plan that is known
    without a budget. The same seed gives the same plans, unless the clock ends the search. `effort`
    is for each budget, as a part of what is usual.
    """

    def __init__(
        self,
        space: SearchSpace,
        devices: Devices,
        moves: Callable[[SearchSpace], Moves],
        deadline: Deadline | None = None,
        seed: int = 0,
        effort: float = 1.0,
    ) -> None:
        self._order = canonical_order(space)
        self._space = search_space([space.options[number] for number in self._order.tolist()])
        self._moves = moves(self._space)
        self._deadline, self._seed = deadline or Deadline(), seed
        self._work = math.ceil(effort * usual_work(space, devices, self._deadline.seconds))
        self._found = with_previous(self._space, devices, self._moves)
        self._stays = previous_options(self._found, self._moves)
        self._rounds = self._states = 0
        self._best: Found | None = None
        self._bound = linear_bound(self._found, self._deadline).milliseconds
        self._within = self._bound  # the bound within a budget
        self._unlimited = best_plan(
            self._space, devices, self._deadline.after(_SHARE_WITHOUT_BUDGET), seed
        )
        if math.isfinite(self._bound):
            self._tables = local_tables(self._found)._replace(
                home=self._moves.home, weight=self._moves.weight
            )

    @staticmethod
    def can_search(space: SearchSpace, devices: Devices) -> bool:
        """Whether it can place this: tables that do not depend on each other, HBM and DDR alone."""
        return can_be_placed_locally(space, devices)

    @property
    def everything(self) -> int:
        """The bytes that the best plan without a budget moves, or 0 where none is known."""
        return self._bytes(self._unlimited) if isinstance(self._unlimited, Found) else 0

    @property
    def _forced(self) -> int:
        """The bytes that every plan moves, of shards that can be nowhere as they were."""
        away = np.where(self._moves.home < 0, self._moves.weight, 0)
        of_option = np.add.reduceat(away, self._space.first_shard[:-1])[self._found.options]
        return int(np.minimum.reduceat(of_option, self._found.first[:-1]).sum())

    def search(self, budget: float) -> NearPlan | NotFound:
        """Return the best plan found within a budget of bytes, or else the least move found."""
        if not math.isfinite(self._bound):
            return NotFound(None, None, 0, self._bound)
        if self._best is not None and self._bytes(self._best) > budget:
            self._best = None
        self._within = near_bound(self._found, self._moves, budget, self._bound, self._deadline)
        self._take(self._unlimited, budget)
        for from_best, temperature, doublings in _RUNS if budget >= self._forced else ():
            start = self._best if from_best else self._unlimited
            self._run(start, budget, temperature, doublings, self._work / len(_RUNS))
        best = self._best
        if best is None:
            self._find_least_move(budget)
            best, self._best = self._best, None
        if best is None:
            said = self._unlimited.tried if isinstance(self._unlimited, NotFound) else ""
            return NotFound(None, None, self._rounds, self._bound, said)
        moved = self._bytes(best)
        if moved > budget:
            self._within = near_bound(self._found, self._moves, moved, self._bound, self._deadline)
        tried = self._rounds + 1
        options = self._order[best.options]
        best = replace(best, options=options, proposals=tried, partitions=tried)
        return NearPlan(best, moved, self._within)

    def _find_least_move(self, budget: float) -> None:
        """Find a plan that moves as little as can be found, and better it within what it moves."""
        low, plan = max(budget, self._forced), self._unlimited
        if isinstance(plan, NotFound):
            self._run(None, math.inf, 1.0, 0, self._work)
            plan = self._best or plan
        for trial in range(_HALVINGS):
            if isinstance(plan, NotFound) or self._deadline.passed:
                break
            high = self._bytes(plan)
            if high - low <= 0.01 * high:
                break
            # Often what must move is all that has to.
            middle = low if trial == 0 else (low + high) // 2
            self._best = None
            for start in (None, plan):
                if self._best is None:
                    self._run(start, middle, 1.0, 0, _WORK_OF_HALVING * self._work, once=True)
            if self._best is None:
                low = middle
            else:
                plan = self._best
        if isinstance(plan, Found):
            self._best = plan
            self._run(plan, self._bytes(plan), 0.1, 1, self._work / len(_RUNS))

    def _run(
        self,
        start: Found | NotFound | None,
        budget: float,
        temperature: float,
        doublings: int,
        work: float,
        once: bool = False,
    ) -> None:
        """Search from a plan, or from the one to stay near; with `once` until one is found."""
        if self._near_enough or self._deadline.passed:
            return
        state = self._state(start if isinstance(start, Found) else None, budget, doublings)
        heat = temperature * min(1.0, _TABLES_AT_FULL_HEAT / self._space.tables)
        self._note(state)
        while state.work[0] < work:
            if self._near_enough or self._deadline.passed or (once and self._best is not None):
                return
            done = int(state.work[0])
            more = math.ceil(min(_WORK_AT_ONCE, work - done))
            self._rounds += improve(
                self._tables, state, more, done / work, (done + more) / work, heat
            )
            self._note(state)

    @property
    def _near_enough(self) -> bool:
        return self._rating <= self._within * (1 + NEAR_ENOUGH)

    @property
    def _rating(self) -> float:
        return math.inf if self._best is None else self._best.rating

    def _state(self, start: Found | None, budget: float, doublings: int) -> State:
        """Return a state at a plan, or at the one to stay near, with what that lacks placed."""
        self._states += 1
        scale = self._within or float(self._found.largest.max()) or 1.0
        seed = [self._seed, self._states]
        state = new_state(self._tables, seed, self._rating, scale, doublings)
        state.figures[BUDGET] = budget
        state.figures[PRICE] = 1.0 / max(float(self._moves.weight.max()), 1.0)
        if start is None:
            chosen, shards = self._stays, None
        else:
            chosen, shards = start.options, iter(np.split(start.ranks, self._ends(start)))
        for table, option in enumerate(chosen.tolist()):
            if option >= 0:
                first, end = self._space.first_shard[option : option + 2]
                ranks = self._moves.home[first:end] if shards is None else next(shards)
                slot = self._tables.slot[table]
                state.chosen[table] = option
                state.ranks[slot : slot + len(ranks)] = ranks
        complete(self._tables, state, self._missing(state))
        return state

    def _ends(self, plan: Found) -> list[int]:
        counts = np.diff(self._space.first_shard)[plan.options]
        return [int(end) for end in np.cumsum(counts)[:-1]]

    def _missing(self, state: State) -> "np.typing.NDArray[np.int64]":
        """Return the tables that are not placed, the largest first."""
        missing = np.flatnonzero(state.chosen < 0)
        first = self._found.options[self._found.first[missing]]
        return missing[np.lexsort((missing, -self._space.option_storage[first].sum(1)))]

    def _note(self, state: State) -> None:
        """Keep the best plan of a state where it is better than the best."""
        if state.best_chosen[0] < 0 or state.best_rating >= self._rating:
            return
        chosen, slots = state.best_chosen, self._tables.slot.tolist()
        counts = np.diff(self._space.first_shard)[chosen].tolist()
        placed = zip(slots, counts, strict=False)
        ranks = np.concatenate([state.best_ranks[slot : slot + count] for slot, count in placed])
        perf = np.zeros(len(state.perf))
        # Shard after shard, as torchrec adds them.
        total = self._space.total[self._space.estimate[shards_of(self._space, chosen)]]
        np.add.at(perf, ranks, total)
        found = Found(chosen.copy(), ranks, float(perf.max()), 0, 0)
        if found.rating < self._rating:
            self._best = found

    def _take(self, plan: Found | NotFound, budget: float) -> None:
        """Keep a plan where it is within the budget and better than the best."""
        within = isinstance(plan, Found) and self._bytes(plan) <= budget
        if isinstance(plan, Found) and within and plan.rating < self._rating:
            self._best = plan

    def _bytes(self, plan: Found) -> int:
        return self._moves.bytes_of(shards_of(self._space, plan.options), plan.ranks)
