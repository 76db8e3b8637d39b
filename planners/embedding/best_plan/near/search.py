"""Searches for the best plan that moves at most a budget of bytes from a previous plan.

The local search starts at the previous plan. It adds a price for every moved byte to the cost and
tunes the price (a Lagrangian multiplier) to keep plans near the budget. Some runs start at the best
plan without a budget; the price then pulls them towards the previous plan.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.best_plan.linear import near_bound, with_previous
from planners.embedding.best_plan.local.exchanges import balance
from planners.embedding.best_plan.local.rounds import construct, improve, parts_of_run
from planners.embedding.best_plan.local.state import (
    BUDGET,
    MOVED,
    PENALTY,
    PRICE,
    TARGET,
    State,
    local_tables,
    new_state,
)
from planners.embedding.best_plan.parts import legal, parts_of
from planners.embedding.best_plan.search import NEAR_ENOUGH, search_in_order, usual_work
from planners.embedding.best_plan.sharding_types import with_fewest_types
from planners.embedding.best_plan.torchrec_rules import can_be_placed_locally, canonical_order
from planners.embedding.plan_files.table import Moves
from planners.embedding.search import warm_up
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import (
    Devices,
    Ints,
    SearchSpace,
    load_of,
    search_space,
)

if TYPE_CHECKING:
    from torchrec.distributed.planner.types import ShardingOption

# The runs for a budget: whether the run starts at the best plan within the budget (else at the best
# plan without one), its temperature, and its doublings of the power of perf. Temperatures are low,
# because both starts are good plans; one run with a high temperature leaves their neighbourhood.
_RUNS = ((True, 0.1, 2), (False, 0.1, 1), (True, 1.0, 0), (True, 0.1, 2))

# The least move is found by bisection to about 1/4000, each step with a tenth of the work.
_HALVINGS = 12
_WORK_OF_HALVING = 0.1

# With more tables times ranks, exchanges come before these runs, each for this part of all work and
# for ranks above a goal, which begins at the rating and falls by this factor towards the bound.
_BALANCED = 100_000
_WORK_TO_BALANCE = 0.03
_STEP = 0.8
_NEAR = 0.004  # less than NEAR_ENOUGH
_MOST_PENALTY = 1e6  # so that memory comes before milliseconds

_SHARE_WITHOUT_BUDGET = 0.4  # part of a time limit for the best plan without a budget


class NearSearch:
    """Searches for the best plan within a budget of moved bytes, for one budget after another.

    `moves` maps options and a number of ranks to Moves. A larger budget starts from the plan for
    the previous budget, so its plan is never worse; with a budget of `everything`, the plan is at
    least as good as the best without a budget. The same seed gives the same plans, unless the
    deadline ends the search. `effort` is the work for each budget, relative to `usual_work`.
    """

    def __init__(
        self,
        space: SearchSpace,
        devices: Devices,
        moves: Callable[[Sequence["ShardingOption"], int], Moves],
        deadline: Deadline | None = None,
        seed: int = 0,
        effort: float = 1.0,
    ) -> None:
        self._order = canonical_order(space)
        self._space = search_space([space.options[number] for number in self._order.tolist()])
        self._deadline, self._seed = deadline or Deadline(), seed
        self._work = math.ceil(effort * usual_work(space, devices, self._deadline.seconds))
        warm_up.ready(warm_up.BEST_PLAN)
        soon = self._deadline.after(_SHARE_WITHOUT_BUDGET)
        self._unlimited = search_in_order(self._space, devices, soon, seed)
        self._moves = moves(self._space.options, devices.ranks)
        self._found = with_previous(self._space, devices, self._moves)
        self._stays = _previous_options(self._found, self._moves)
        self._rounds = self._states = 0
        self._best: Found | None = None
        self._bound = math.inf if len(self._found.without_options) else self._unlimited.bound
        self._within = self._bound  # the lower bound on plans within the current budget
        if math.isfinite(self._bound):
            self._tables = local_tables(self._found)._replace(
                home=self._moves.home, weight=self._moves.weight
            )

    @staticmethod
    def can_search(space: SearchSpace, devices: Devices) -> bool:
        """Whether the local search can place this problem."""
        return can_be_placed_locally(space, devices)

    @property
    def everything(self) -> int:
        """The bytes moved by the best plan without a budget; 0 if no such plan is known."""
        return self._bytes(self._unlimited) if isinstance(self._unlimited, Found) else 0

    @property
    def unlimited(self) -> Found | NotFound:
        """The best plan without a budget."""
        best = self._unlimited
        if isinstance(best, NotFound):
            return best
        return replace(best, options=self._order[best.options])

    @property
    def _forced(self) -> int:
        """The bytes that every plan must move, because each option has shards without a home."""
        of_option = self._moves.least_moved(self._space)[self._found.options]
        return int(np.minimum.reduceat(of_option, self._found.first[:-1]).sum())

    def search(self, budget: float) -> Found | NotFound:
        """Return the best plan found within `budget` bytes, else the plan that moves the fewest.

        Its bound holds for all plans that move as many bytes as the budget or as this plan.
        """
        if not math.isfinite(self._bound):
            return NotFound(None, None, 0, self._bound)
        if self._best is not None and self._bytes(self._best) > budget:
            self._best = None
        self._within = self._bound
        self._take(self._unlimited, budget)
        possible = budget >= self._forced
        if possible:
            self._run(self._best, budget, *_RUNS[0][1:], work=0)
            if self._space.tables * self._found.devices.ranks > _BALANCED:
                self._balance(budget)
        if not self._near_enough:
            self._within = near_bound(self._found, self._moves, budget, self._bound, self._deadline)
        for from_best, temperature, doublings in _RUNS if possible else ():
            start = self._best if from_best else self._unlimited
            self._run(start, budget, temperature, doublings, self._work / len(_RUNS))
        best = self._best
        if best is None:
            self._find_least_move(budget)
            best, self._best = self._best, None
        if best is None:
            words = self._unlimited.tried if isinstance(self._unlimited, NotFound) else ""
            return NotFound(None, None, self._rounds, self._bound, words)
        simpler = with_fewest_types(self._space, self._found.devices, best)
        if self._bytes(simpler) <= self._bytes(best):
            best = simpler
        moved = self._bytes(best)
        if moved > budget:
            self._within = near_bound(self._found, self._moves, moved, self._bound, self._deadline)
        tried = self._rounds + 1
        options = self._order[best.options]
        return Found(options, best.ranks, best.rating, tried, tried, self._within, moved)

    def _balance(self, budget: float) -> None:
        """Lower the slowest ranks of the best plan by exchanges, until these use up the budget.

        On many ranks, rounds of the local search are slow. Only ranks above a goal begin exchanges,
        so most shards stay at home; the goal falls step by step while the plan is in the budget.
        """
        state, none = self._state(self._best, budget, 0), np.empty(0, np.int64)
        state.figures[TARGET], state.figures[PENALTY] = self._scale, _MOST_PENALTY
        above = float(state.perf.max()) / self._scale - 1
        while above > _NEAR and state.figures[MOVED] <= budget and not self._deadline.passed:
            above = max(_STEP * above, _NEAR)
            for doublings in (0, 2):
                work = int(_WORK_TO_BALANCE * self._work) + 1
                goal = self._scale * (1 + above)
                balance(self._tables, state, doublings, work, goal, new_options=doublings > 0)
            construct(self._tables, state, none, state.chosen)  # records the plan if it fits
            self._note(state)

    def _find_least_move(self, budget: float) -> None:
        """Bisect for a plan that moves few bytes, then improve it without moving more."""
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
            # Often a plan exists that moves only the forced bytes, so try that first.
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
        """Run the local search from `start`, else from the previous plan.

        If `once`, stop at the first plan within the budget.
        """
        if self._near_enough or self._deadline.passed:
            return
        state = self._state(start if isinstance(start, Found) else None, budget, doublings)
        self._note(state)
        for part in parts_of_run(state, work):
            if self._near_enough or self._deadline.passed or (once and self._best is not None):
                return
            self._rounds += improve(self._tables, state, *part, temperature)
            self._note(state)

    @property
    def _near_enough(self) -> bool:
        return self._rating <= self._within * (1 + NEAR_ENOUGH)

    @property
    def _rating(self) -> float:
        return math.inf if self._best is None else self._best.rating

    @property
    def _scale(self) -> float:
        """Milliseconds by which ranks' loads are scaled: the bound, or a fallback if it is 0."""
        return self._within or float(self._found.largest.max()) or 1.0

    def _state(self, start: Found | None, budget: float, doublings: int) -> State:
        """Return a state with plan `start`, else with the previous plan and all tables placed."""
        self._states += 1
        seed = [self._seed, self._states]
        state = new_state(self._tables, seed, self._rating, self._scale, doublings)
        state.figures[BUDGET] = budget
        state.figures[PRICE] = 1.0 / max(float(self._moves.weight.max()), 1.0)
        if start is None:
            options = self._stays[self._stays >= 0]
            ranks = self._moves.home[_shards_of(self._space, options)]
        else:
            options, ranks = start.options, start.ranks
        state.place(self._tables, self._space.table, options, ranks)
        none = np.full_like(state.chosen, -1)
        construct(self._tables, state, self._missing(state), none)
        return state

    def _missing(self, state: State) -> Ints:
        """Return the tables of a state that are not placed yet, the largest first."""
        missing = np.flatnonzero(state.chosen < 0)
        first = self._found.options[self._found.first[missing]]
        return missing[np.lexsort((missing, -self._space.option_storage[first].sum(1)))]

    def _note(self, state: State) -> None:
        """Set `_best` to the best plan of a state if that rates lower."""
        if state.found and state.best_rating < self._rating:
            options, ranks = state.best_plan(self._tables)
            rating = load_of(self._space, options, ranks, self._found.devices.ranks).rating
            if rating < self._rating:
                self._best = Found(options, ranks, rating, 0, 0)

    def _take(self, plan: Found | NotFound, budget: float) -> None:
        """Set `_best` to a plan if that is within the budget and rates lower."""
        if isinstance(plan, Found) and plan.rating < self._rating and self._bytes(plan) <= budget:
            self._best = plan

    def _bytes(self, plan: Found) -> int:
        return self._moves.bytes_of(_shards_of(self._space, plan.options), plan.ranks)


def _shards_of(space: SearchSpace, options: Ints) -> Ints:
    """Return the shard numbers of some options as a flat array, option by option."""
    first = space.first_shard[options]
    counts = space.first_shard[options + 1] - first
    begin = np.cumsum(counts) - counts
    return np.repeat(first - begin, counts) + np.arange(counts.sum())


def _previous_options(found: Candidates, moves: Moves) -> Ints:
    """Return each table's option that can keep all shards at home, or -1 if none, shape (T,)."""
    space, stays = found.space, np.full(found.space.tables, -1)
    parts = parts_of(space, found.devices)
    options, kept = np.unique(moves.options_at_home(space), return_counts=True)
    whole = options[kept == np.diff(space.first_shard)[options]]
    for option in whole[np.isin(whole, found.options)].tolist():
        ranks = moves.home[space.first_shard[option] : space.first_shard[option + 1]]
        if legal(parts, found.devices, option, ranks):
            stays[space.table[option]] = option
    return stays
