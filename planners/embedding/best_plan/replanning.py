"""Searches for the best plan that moves at most a budget of bytes from a previous plan.

The cost of the local search gets a price for every moved byte, which the search tunes (a Lagrangian
multiplier) so that plans stay near the budget.

1. Search for the best plan without a budget, once for all budgets.
2. For a budget, start at the plan of a smaller budget, at the best plan if that is within this
   budget, or at the previous plan; tables that this lacks are placed where they add least cost.
3. Prove a bound on the plans within the budget.
4. Run the local search from the best plan within the budget, and from the best one without a
   budget, which the price pulls towards the previous plan.
5. If no plan is within the budget, bisect for one that moves few bytes.
6. Lower the number of sharding types if all shards can stay on their ranks.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.best_plan.linear import near_bound, with_previous
from planners.embedding.best_plan.local import LocalSearch
from planners.embedding.best_plan.parts import legal, parts_of
from planners.embedding.best_plan.search import NEAR_ENOUGH, search_in_order, usual_work
from planners.embedding.best_plan.torchrec_rules import canonical_order, with_fewest_types
from planners.embedding.plan_files.table import Moves
from planners.embedding.search import warm_up
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Devices, Ints, SearchSpace, search_space

if TYPE_CHECKING:
    from torchrec.distributed.planner.types import ShardingOption

# The runs for a budget: whether the run starts at the best plan within the budget (else at the best
# plan without one), its heat, and its doublings of the power of perf. The heat is low, because both
# starts are good plans; one run with a high heat leaves their neighbourhood.
_RUNS = ((True, 0.1, 2), (False, 0.1, 1), (True, 1.0, 0), (True, 0.1, 2))

_HALVINGS = 12
"""Steps of the bisection for the least move, to about 1/4000 of the bytes."""


class Replanning:
    """Searches for the best plan within a budget of moved bytes, for one budget after another.

    `moves` maps options and a number of ranks to Moves. A larger budget starts from the plan for
    the previous budget, so its plan is never worse; with a budget of `everything`, the plan is at
    least as good as the best without a budget. The same seed gives the same plans, unless the
    deadline ends the search. `effort` is the work for each budget, relative to `usual_work`. The
    problem must be one that `can_be_placed_locally`.
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
        self._deadline = deadline or Deadline()
        self._work = effort * usual_work(space, devices, self._deadline.seconds)
        warm_up.ready(warm_up.BEST_PLAN)
        soon = self._deadline.after(0.4)  # the budgets need the rest of the time
        self._unlimited = search_in_order(self._space, devices, soon, seed)
        self._moves = moves(self._space.options, devices.ranks)
        self._candidates = with_previous(self._space, devices, self._moves)
        impossible = len(self._candidates.without_options)
        self._bound = math.inf if impossible else self._unlimited.bound
        if math.isfinite(self._bound):
            self._local = LocalSearch(self._candidates, self._bound, seed, moves=self._moves)
            options = _previous_options(self._candidates, self._moves)
            self._previous = options, self._moves.home[_shards_of(self._space, options)]
            # Every plan moves these bytes, because each option has shards without a home.
            least = self._moves.least_moved(self._space)[self._candidates.options]
            self._forced = int(np.minimum.reduceat(least, self._candidates.first[:-1]).sum())

    @property
    def everything(self) -> int:
        """The bytes moved by the best plan without a budget; 0 if no such plan is known."""
        return self._bytes(self._unlimited) if isinstance(self._unlimited, Found) else 0

    @property
    def unlimited(self) -> Found | NotFound:
        """The best plan without a budget."""
        best = self._unlimited
        return (
            best if isinstance(best, NotFound) else replace(best, options=self._order[best.options])
        )

    def search(self, budget: float) -> Found | NotFound:
        """Return the best plan found within `budget` bytes, else the plan that moves the fewest.

        Its bound holds for all plans that move as many bytes as the budget or as this plan.
        """
        if not math.isfinite(self._bound):
            return NotFound(None, None, 0, self._bound)
        local = self._local
        local.budget, local.bound = budget, self._bound
        known = [plan for plan in (local.best, self._unlimited) if isinstance(plan, Found)]
        within = [plan for plan in known if self._bytes(plan) <= budget]
        local.best = min(within, key=lambda plan: plan.rating, default=None)
        if budget >= self._forced:
            if local.best is None:
                self._run(None, 0.0, 0, 0)
            if not self._ended:
                local.bound = self._bound_within(budget)
            for from_best, heat, doublings in _RUNS:
                start = local.best if from_best else self._unlimited
                self._run(start, heat, doublings, self._work / len(_RUNS))
        best = local.best or self._least_move(budget)
        if best is None:
            words = self._unlimited.tried if isinstance(self._unlimited, NotFound) else ""
            return NotFound(None, None, local.rounds, self._bound, words)
        simpler = with_fewest_types(self._space, self._candidates.devices, best)
        if self._bytes(simpler) <= self._bytes(best):
            best = simpler
        moved, tried = self._bytes(best), local.rounds + 1
        bound = local.bound if moved <= budget else self._bound_within(moved)
        return Found(self._order[best.options], best.ranks, best.rating, tried, tried, bound, moved)

    def _least_move(self, budget: float) -> Found | None:
        """Bisect for a plan that moves few bytes, then improve it without moving more."""
        local, low, plan = self._local, max(budget, self._forced), self._unlimited
        if isinstance(plan, NotFound):
            local.budget = math.inf
            self._run(None, 1.0, 0, self._work)
            if local.best is None:
                return None
            plan = local.best
        for trial in range(_HALVINGS):
            high = self._bytes(plan)
            if high - low <= 0.01 * high or self._deadline.passed:
                break
            # Often a plan exists that moves only the forced bytes, so try that first.
            middle = low if trial == 0 else (low + high) // 2
            local.budget, local.best = middle, None
            for start in (None, plan):
                if local.best is None:
                    self._run(start, 1.0, 0, self._work / 10, once=True)
            if local.best is None:
                low = middle
            else:
                plan = local.best
        local.budget, local.best = self._bytes(plan), plan
        self._run(plan, 0.1, 1, self._work / len(_RUNS))
        return local.best

    def _run(
        self,
        start: Found | NotFound | None,
        heat: float,
        doublings: int,
        work: float,
        once: bool = False,
    ) -> None:
        """Run the local search from a plan, else from the previous plan.

        If `once`, stop at the first plan within the budget.
        """
        if self._ended:
            return
        plan = (start.options, start.ranks) if isinstance(start, Found) else self._previous
        state = self._local.start_from(*plan, doublings)
        self._local.run(
            state, work, heat, lambda: self._ended or (once and self._local.best is not None)
        )

    @property
    def _ended(self) -> bool:
        near_enough = self._local.best_rating <= self._local.bound * (1 + NEAR_ENOUGH)
        return near_enough or self._deadline.passed

    def _bound_within(self, budget: float) -> float:
        """Return a lower bound in milliseconds on the plans that move at most `budget` bytes."""
        return near_bound(self._candidates, self._moves, budget, self._bound, self._deadline)

    def _bytes(self, plan: Found) -> int:
        return self._moves.bytes_of(_shards_of(self._space, plan.options), plan.ranks)


def _shards_of(space: SearchSpace, options: Ints) -> Ints:
    """Return the shard numbers of some options as a flat array, option by option."""
    first = space.first_shard[options]
    counts = space.first_shard[options + 1] - first
    begin = np.cumsum(counts) - counts
    return np.repeat(first - begin, counts) + np.arange(counts.sum())


def _previous_options(candidates: Candidates, moves: Moves) -> Ints:
    """Return the options that can keep all shards at home, at most one for each table."""
    space, stays = candidates.space, np.full(candidates.space.tables, -1)
    parts = parts_of(space, candidates.devices)
    options, kept = np.unique(moves.options_at_home(space), return_counts=True)
    whole = options[kept == np.diff(space.first_shard)[options]]
    for option in whole[np.isin(whole, candidates.options)].tolist():
        ranks = moves.home[space.first_shard[option] : space.first_shard[option + 1]]
        if legal(parts, candidates.devices, option, ranks):
            stays[space.table[option]] = option
    return stays[stays >= 0]
