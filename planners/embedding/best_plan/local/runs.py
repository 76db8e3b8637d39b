"""The runs of the local search that look for the best plan, and the bounds proven between them."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from planners.embedding.best_plan.bounds.bound import (
    LowerBound,
    integer_bound,
    worth_integers,
)
from planners.embedding.best_plan.bounds.configuration import pattern_bound, worth_patterns
from planners.embedding.best_plan.bounds.presolve import presolve_bound
from planners.embedding.best_plan.bounds.programmes import LinearRelaxation
from planners.embedding.best_plan.bounds.single_devices import single_device_bound
from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.best_plan.exact.search import NO_BETTER, ExactSearch, worth_exact
from planners.embedding.best_plan.local.rounds import construct, improve
from planners.embedding.best_plan.local.state import TARGET, State, local_tables, new_state
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Ints, Placement

NEAR_ENOUGH = 0.005
"""A plan that is proven to be this near the best one, as a part of the bound, ends the search."""

# From a plan that is this near, heat only leads away: it is gone on from, cold and steep.
_NEARLY = 0.02
_RUN_NEARBY = (0.1, 4)

# A start leaves out options with shards above one of these parts of the bound: without giants in
# it, the relaxed plan can be placed nearly as it is.
_LARGEST_PARTS = (math.inf, 1.0, 0.8, 0.65, 0.5, 0.4, 0.3)

# The runs of the search, each from another start and the last one from the best plan: the
# temperature of a run for few tables, and how often the power of perf is doubled in it. Long, hot
# and flat is best where memory is scarce; where it is plenty, plans are soon near enough to go on
# cold.
_RUNS = ((2.0, 0), (2.0, 0), (0.1, 2))
_STARTS = 3  # how many of the best starts the runs go on from
_TABLES_AT_FULL_HEAT = 32

_WORK_PER_START = 0.02  # as a part of all work
_WORK_TO_FIT = 0.2  # of a search for any plan that fits, where no other one has found one
_WORK_AT_ONCE = 4_000_000  # the clock is looked at in between

EXACT_SHARE = 0.5  # what the exact search of a small problem may take beside the work
_FIRST_EXACT_SHARE = 0.3  # and the part of it that is done before the local search
_SHARE_OF_INTEGERS = 0.2  # and the part of it that the integer programme may take

# The bound by patterns: without branches first, for this work, then before this run with branches.
_WORK_OF_BOUND = 8_000_000
_MOST_BRANCHES = 1000
_WORK_OF_BRANCHES = 80_000_000
_RUN_OF_BRANCHES = 1
_PATTERNS_PER_SECOND = 2e6  # of a time limit; a tenth of what is done in it


class LocalSearch:
    """Goes on from the relaxed plans whose placement is most promising."""

    def __init__(
        self,
        found: Candidates,
        bound: LowerBound,
        proposed: Found | NotFound,
        work: int,
        seed: int,
    ) -> None:
        self._found, self._space = found, found.space
        self._bound = bound
        self._proposed = proposed
        self._seed = seed
        self._tables = local_tables(found)
        self._all_work = work
        self._states = 0
        self.rounds = 0
        self._proofs: dict[str, None] = {}  # by which a bound was looked for, in their order
        self._best: State | None = None
        self._best_rating = proposed.rating if isinstance(proposed, Found) else math.inf
        self._exact = ExactSearch(found) if worth_exact(found) else None
        self._exact_work = work * EXACT_SHARE

    @property
    def proven(self) -> float:
        """Milliseconds that no plan rates below; infinite where there is none."""
        return self._bound.milliseconds

    @property
    def tried(self) -> list[str]:
        """What has been tried for a plan and for a proof that there is none."""
        proofs = ["the linear programme", "reduced costs", *self._proofs]
        return [
            f"{self.rounds} rounds of local search from {self._states} starts",
            f"for a proof, {', '.join(proofs[:-1])} and {proofs[-1]}",
        ]

    @property
    def _near_enough(self) -> bool:
        return self._best_rating <= self._bound.milliseconds * (1 + NEAR_ENOUGH)

    @property
    def _nearly(self) -> bool:
        return self._best_rating <= self._bound.milliseconds * (1 + _NEARLY)

    @property
    def _scale(self) -> float:
        """Milliseconds to measure ranks by: the bound, unless that is zero."""
        return self._bound.milliseconds or float(self._found.largest.max()) or 1.0

    def run(self, deadline: Deadline) -> None:
        """Search until the best plan is near enough, all work is done, or the time is up.

        Small problems are first tried to be solved, which is soon done or takes too long.
        """
        starts = []
        self._rule_out(deadline)
        for options in self._relaxed_plans(deadline):
            if self._near_enough or deadline.passed:
                break
            starts.append(self._start(options))
        if deadline.passed:
            return
        if not self._near_enough:
            self._rule_out(deadline)
        self._solve(_FIRST_EXACT_SHARE, deadline)
        if not self._near_enough:
            self._search_on(starts, deadline)
            self._solve(1 - _FIRST_EXACT_SHARE, deadline)

    def _rule_out(self, deadline: Deadline) -> None:
        """Raise the bound by what no plan can have, and leave out what no better plan can have."""
        least, self._found = presolve_bound(
            self._found, self._bound.milliseconds, self._best_rating, deadline
        )
        self._bound = replace(self._bound, milliseconds=least)
        slot = self._tables.slot  # where states have the ranks of shards
        self._tables = local_tables(self._found)._replace(slot=slot)

    def _solve(self, share: float, deadline: Deadline) -> None:
        """Do a part of the exact search, if the problem is small enough for it."""
        exact = self._exact
        if exact is None or self._best_rating <= self.proven * (1 + NO_BETTER):
            return
        self._proofs["branch and bound over all options and ranks"] = None
        work = math.ceil(share * self._exact_work)
        exact.run(self.proven, self._best_rating, work, deadline)
        if exact.rating < self._best_rating:
            self._best_rating = exact.rating
        if exact.least > self.proven:
            self._bound = replace(self._bound, milliseconds=exact.least)

    def _search_on(self, starts: list[State], deadline: Deadline) -> None:
        """Go on from the best starts."""
        starts.sort(key=lambda state: (state.best_rating, state.cost.sum()))
        if self._best is None:
            starts.insert(0, self._start_that_fits(deadline))
        if worth_integers(self._found) and (self._best is None or worth_patterns(self._found)):
            self._proofs["an integer programme by host"] = None
            soon = deadline.after(_SHARE_OF_INTEGERS)
            whole = integer_bound(self._found, self._bound.milliseconds, soon)
            self._bound = max(self._bound, whole, key=lambda bound: bound.milliseconds)
        self._raise_bound(0, _WORK_OF_BOUND, deadline)
        options = self._look_at_single_devices(deadline)
        if options is not None:
            starts.insert(0, self._start(options))
        work = self._all_work / len(_RUNS)
        for run, (temperature, doublings) in enumerate(_RUNS):
            if run == _RUN_OF_BRANCHES and not (self._near_enough or deadline.passed):
                unrefuted = self._raise_bound(_MOST_BRANCHES, _WORK_OF_BRANCHES, deadline)
                if unrefuted is not None:
                    starts.insert(0, self._start(unrefuted))
            if run == len(_RUNS) - 1:
                self._look_at_single_devices(deadline)
            if math.isinf(self._bound.milliseconds):
                return
            start = starts[run % min(len(starts), _STARTS)]
            if self._best is not None and self._nearly:
                start, (temperature, doublings) = self._best, _RUN_NEARBY
            elif self._best is not None and run == len(_RUNS) - 1:
                start = self._best
            state = self._continued(start, doublings)
            while state.work[0] < work:
                if self._near_enough or deadline.passed:
                    return
                done = int(state.work[0])
                more = math.ceil(min(_WORK_AT_ONCE, work - done))
                self._improve(state, more, done / work, (done + more) / work, temperature)

    def _look_at_single_devices(self, deadline: Deadline) -> Ints | None:
        """Raise the bound by what a single device can hold, where a plan is known.

        Return whole options that hosts have room for, where any were found.
        """
        if self._best is None or self._near_enough or not worth_integers(self._found):
            return None
        self._proofs["an integer programme by host and device"] = None
        soon = deadline.after(_SHARE_OF_INTEGERS)
        found = single_device_bound(self._found, self._bound.milliseconds, self._best_rating, soon)
        self._bound = replace(self._bound, milliseconds=found.milliseconds)
        return found.options if (found.options >= 0).all() else None

    def _raise_bound(self, branches: int, work: int, deadline: Deadline) -> Ints | None:
        """Raise the bound by patterns of devices; return options that it found nothing against."""
        if not worth_patterns(self._found):
            return None
        self._proofs["patterns of devices"] = None
        if deadline.seconds is not None:
            work = min(work, int(_PATTERNS_PER_SECOND * deadline.seconds) + 1)
        milliseconds, unrefuted = pattern_bound(
            self._found,
            self._bound.milliseconds,
            self._best_rating,
            branches,
            work,
        )
        self._bound = replace(self._bound, milliseconds=milliseconds)
        return unrefuted

    def _start(self, options: Ints) -> State:
        """Return a relaxed plan, placed, and a little improved."""
        state = self._empty(doublings=0)
        construct(self._tables, state, self._order(options), options)
        work = int(self._all_work * _WORK_PER_START) + 1
        self._improve(state, work, 0.7, 0.9, temperature=1.0)
        return state

    def _start_that_fits(self, deadline: Deadline) -> State:
        """Return the proposed plan; without one, what a search for any plan that fits comes to."""
        state = self._empty(doublings=0)
        if isinstance(self._proposed, Found):
            counts = np.diff(self._space.first_shard)[self._proposed.options]
            ranks = np.split(self._proposed.ranks, np.cumsum(counts)[:-1])
            for option, on in zip(self._proposed.options.tolist(), ranks, strict=True):
                table = self._space.table[option]
                begin = self._tables.slot[table]
                state.chosen[table] = option
                state.ranks[begin : begin + len(on)] = on
            return state
        options = self._found.smallest
        state.figures[TARGET] = self._found.any_rating
        construct(self._tables, state, self._order(options), options)
        work = int(_WORK_TO_FIT * self._all_work) + 1
        while state.work[0] < work and state.best_rating == math.inf and not deadline.passed:
            self._improve(state, _WORK_AT_ONCE // 8, 0.5, 0.5, temperature=1.0)
        return state

    def _continued(self, start: State, doublings: int) -> State:
        """Return a new state at the best plan of another one, or where that is now."""
        state = self._empty(doublings)
        from_best = start.best_chosen[0] >= 0
        state.chosen[:] = start.best_chosen if from_best else start.chosen
        state.ranks[:] = start.best_ranks if from_best else start.ranks
        return state

    def _empty(self, doublings: int) -> State:
        self._states += 1
        seed = [self._seed, self._states]
        return new_state(self._tables, seed, self._best_rating, self._scale, doublings)

    def _improve(
        self, state: State, work: int, begin: float, end: float, temperature: float
    ) -> None:
        heat = temperature * min(1.0, _TABLES_AT_FULL_HEAT / self._space.tables)
        self.rounds += improve(self._tables, state, work, begin, end, heat)
        if state.best_rating < self._best_rating:
            self._best, self._best_rating = state, state.best_rating

    def outcome(self) -> Found | NotFound:
        """Return the best plan, which may be the proposed one."""
        proposals = self._proposed.proposals + self.rounds
        solved = self._exact.plan if self._exact else None
        if solved and self._exact and self._exact.rating == self._best_rating:
            return Found(*solved, self._best_rating, proposals, proposals)
        if self._best is None:
            return replace(self._proposed, proposals=proposals)
        chosen, slots = self._best.best_chosen, self._tables.slot.tolist()
        shards = [self._space.estimates_of(option) for option in chosen.tolist()]
        ranks = np.concatenate(
            [self._best.best_ranks[a : a + len(b)] for a, b in zip(slots, shards, strict=False)]
        )
        perf = np.zeros(self._found.devices.ranks)
        # Shard after shard, as torchrec adds them.
        np.add.at(perf, ranks, self._space.total[np.concatenate(shards)])
        return Found(chosen.copy(), ranks, float(perf.max()), proposals, proposals)

    def _relaxed_plans(self, deadline: Deadline) -> Iterator[Ints]:
        """Yield different choices of options that fit in sum, the cheapest first."""
        relaxation = LinearRelaxation(self._found)
        seen = set()
        for part in _LARGEST_PARTS:
            if deadline.passed:
                return
            cost, options = relaxation.solve(part * self._bound.milliseconds, deadline)
            if math.isfinite(cost) and (options >= 0).all() and options.tobytes() not in seen:
                seen.add(options.tobytes())
                yield options

    def _order(self, options: Ints) -> Ints:
        """Return the tables as they are placed: those with least choice first, then the largest."""
        space = self._space
        first = space.estimate[space.first_shard[options]]
        parts = (space.storage[first] * self._tables.share.min(0)).max(1)
        size = np.maximum(parts, space.total[first] / self._scale)
        placement = space.placement[options]
        choice = np.select(
            [placement == Placement.UNIFORM, placement == Placement.DEVICE], [0, 2], default=1
        )
        return np.lexsort((-size, choice))
