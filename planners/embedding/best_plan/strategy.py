"""The strategy of `certified`: which searches and provers run, in which order and for how long.

1. Presolve rules out options that no better plan can contain, by reduced costs and free memory.
2. Solutions of the linear programme are placed and improved a little; they become the starts. On
   many ranks, exchanges of shards balance each start until one fits into memory. On thousands of
   ranks, local search on a few hosts at a time (regions) then improves the best one.
3. Presolve runs again, now with a better plan known.
4. Branch and bound runs on small problems with 30 % of its work, enough if it can solve them.
5. The integer programme by host, patterns of devices and the integer programme by device raise the
   bound; the options from the last one become one more start.
6. Local search makes three runs from the best starts. Before the second, patterns branch on
   options; before the third, the integer programme by device runs again with the new best rating.
   On many ranks, regions follow; on thousands of ranks, regions are all of the local search.
7. Branch and bound runs with the rest of its work.

The search ends as soon as a plan is within NEAR_ENOUGH of the bound. Limits are counts of work, so
that results do not depend on the machine; with a time limit, the clock also ends each step.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from planners.embedding.best_plan.bounds.bound import LowerBound, integer_bound, linear_bound
from planners.embedding.best_plan.bounds.configuration import pattern_bound
from planners.embedding.best_plan.bounds.presolve import presolve_bound, presolved
from planners.embedding.best_plan.bounds.programmes import LinearRelaxation
from planners.embedding.best_plan.bounds.single_devices import single_device_bound
from planners.embedding.best_plan.bounds.sizes import worth_exact, worth_integers, worth_patterns
from planners.embedding.best_plan.candidates import Candidates, candidates
from planners.embedding.best_plan.exact.search import NO_BETTER, ExactSearch
from planners.embedding.best_plan.local.rounds import parts_of_run
from planners.embedding.best_plan.local.search import LocalSearch
from planners.embedding.best_plan.local.state import State
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Devices, Ints, SearchSpace

WORK_PER_SECOND = 120e6
"""Ratings of a rank in a second of CPU: 120 to 175 million on one core of a cloud machine."""

_SHARE_OF_LIMIT = 0.7  # for the local search; the rest is for set-up, bounds and proposals

# Without a limit: with the bounds, a user waits about 5 s at most; longer if tables times ranks is
# over a million.
_MOST_SECONDS, _SECONDS_PER_RANK = 4.0, 3e-7

NEAR_ENOUGH = 0.005
"""A plan within this part of the bound ends the search: estimates are not that exact."""

# From a plan within this part of the bound, a high temperature only makes plans worse. So the next
# run has this temperature and these doublings of the power of perf.
_NEARLY = 0.02
_RUN_NEARBY = (0.1, 4)

# Each run's temperature, and doublings of the power of perf (see local.ranks). A high temperature
# and a low power are best if memory is scarce; otherwise plans are soon within _NEARLY of the bound
# and continue with _RUN_NEARBY.
_RUNS = ((2.0, 0), (2.0, 0), (0.1, 2))
_STARTS = 3  # each run begins at another one of this many best starts

# Each start leaves out options with shards above one of these parts of the bound. Without large
# shards, the relaxed plan can be placed nearly unchanged; the best part differs between problems.
_LARGEST_PARTS = (math.inf, 1.0, 0.8, 0.65, 0.5, 0.4, 0.3)
# With more tables times ranks, rounds are slow, so other starts are made: balanced by exchanges,
# and from relaxed plans that use a part of the memory, since their shards are easier to place.
_BALANCED = 100_000
_FILLS = (1.0, 0.98, 0.95, 0.9, 0.8, 0.7)
# Part of all work, up to three times for each start; more where no regions improve it afterwards.
_WORK_TO_BALANCE, _WORK_WITHOUT_REGIONS = 0.04, 0.08
# With still more, rounds hardly improve a plan, and regions do all further work: several times the
# usual one, and more if no start fits that may use all memory.
_ONLY_REGIONS = 1_000_000
_WORK_OF_REGIONS, _WORK_IF_SCARCE = 3, 6
_WORK_PER_START = 0.02  # part of all work: seven starts take a seventh
_WORK_TO_FIT = 0.2  # part of all work, to find any plan that fits if none is known

# Branch and bound does this much work in addition to the local search. It solves small problems in
# the first share, or needs far more than all; the local search in between finds a better plan.
_EXACT_SHARE = 0.5
_FIRST_EXACT_SHARE = 0.3

# Part of the remaining time for an integer programme: its work limit counts nodes, and a single
# node may take long.
_SHARE_OF_INTEGERS = 0.2

# The work of the bound by patterns, in nodes, about 20 million per second: first without branches
# for under 0.5 s, then with branches for at most 4 s. With a time limit, at most a tenth of it.
_WORK_OF_PATTERNS = 8_000_000
_WORK_OF_BRANCHES, _BRANCHES = 80_000_000, 1000
_PATTERNS_PER_SECOND = 2e6


def usual_work(space: SearchSpace, devices: Devices, limit: float | None = None) -> int:
    """Return the work of the local search: enough for most problems, or for `limit` seconds.

    One unit of work is one rating of a rank.
    """
    if limit is not None:
        seconds = _SHARE_OF_LIMIT * limit
    else:
        # Fitted to the time after which gaps hardly shrink; it grows with tables and ranks.
        most = _MOST_SECONDS + _SECONDS_PER_RANK * space.tables * devices.ranks
        seconds = min(0.5 + space.tables * (16 + devices.ranks) / 1500, most)
    return int(seconds * WORK_PER_SECOND) + 1


def lower_bound(space: SearchSpace, devices: Devices) -> LowerBound:
    """Return the best lower bound from provers that need no plan and are worth their run time."""
    found = presolved(candidates(space, devices))
    bound = linear_bound(found)
    if math.isfinite(bound.milliseconds):
        least, _ = presolve_bound(found, bound.milliseconds, math.inf, Deadline())
        bound = replace(bound, milliseconds=least)
    if worth_integers(found) and math.isfinite(bound.milliseconds):
        whole = integer_bound(found, bound.milliseconds)
        bound = max(bound, whole, key=lambda known: known.milliseconds)
    if worth_patterns(found) and math.isfinite(bound.milliseconds):
        bound = replace(bound, milliseconds=pattern_bound(found, bound.milliseconds))
    return bound


class CertifiedSearch:
    """Searches for the best plan and for a bound close to it, in the steps of the module docstring.

    `bound` is a proven bound to start from, `proposed` the outcome of torchrec's proposals.
    """

    def __init__(
        self,
        found: Candidates,
        bound: float,
        proposed: Found | NotFound,
        seed: int,
        deadline: Deadline,
    ) -> None:
        self._found, self._proposed, self._deadline = found, proposed, deadline
        self._local = LocalSearch(found, bound, proposed, seed)
        self._work = usual_work(found.space, found.devices, deadline.seconds)
        self._exact = ExactSearch(found) if worth_exact(found) else None
        if self._exact and deadline.seconds is not None:
            self._work = math.ceil(self._work / (1 + _EXACT_SHARE))
        self._proofs: dict[str, None] = {}  # names of the provers that ran, in order (a set)

    @property
    def proven(self) -> float:
        """The proven bound in milliseconds; infinite if it is proven that there is no plan."""
        return self._local.bound

    @property
    def rounds(self) -> int:
        """The number of rounds of local search so far."""
        return self._local.rounds

    @property
    def tried(self) -> list[str]:
        """Phrases that describe the searches and provers that ran, for messages."""
        proofs = ["the linear programme", "reduced costs", *self._proofs]
        return [
            f"{self.rounds} rounds of local search from {self._local.starts} starts",
            f"for a proof, {', '.join(proofs[:-1])} and {proofs[-1]}",
        ]

    def run(self) -> Found | NotFound:
        """Search until the best plan is near enough, all work is done, or the deadline passes."""
        self._search()
        exact, best = self._exact, self._local.best
        tried = self._proposed.proposals + self.rounds
        if exact and exact.plan and exact.rating == self._local.best_rating:
            plan = exact.plan
        elif best:
            plan = best.best_plan(self._local.tables)
        elif isinstance(self._proposed, Found):
            return replace(self._proposed, proposals=tried)
        else:
            return self._proposed
        return Found(*plan, self._found.rate(*plan), tried, tried)

    def _search(self) -> None:
        starts = []
        self._rule_out()
        size = self._found.space.tables * self._found.devices.ranks
        many, only_regions = size > _BALANCED, size > _ONLY_REGIONS and self._local.has_regions
        if many:
            starts = self._balanced_starts()
            if only_regions and starts and not self._near_enough:
                scarce = len(starts) > 2
                times = _WORK_IF_SCARCE if scarce else _WORK_OF_REGIONS
                self._improve_regions(starts, times)
        if self._local.best is None or not many:
            for options in self._relaxed_plans((part, 1.0) for part in _LARGEST_PARTS):
                if self._ended:
                    break
                starts.append(self._start_at(options))
        if self._deadline.passed:
            return
        if not self._near_enough:
            self._rule_out()
        self._solve(_FIRST_EXACT_SHARE)
        if not self._near_enough:
            if not (only_regions and self._local.best):
                self._search_locally(starts)
                if many and self._local.has_regions and not self._ended:
                    self._improve_regions(starts, 1)
            self._solve(1 - _FIRST_EXACT_SHARE)

    def _improve_regions(self, starts: list[State], times: int) -> None:
        """Improve the best plan, or else the best start, for `times` the usual work."""
        start = min(starts, key=lambda state: (state.best_rating, state.cost.sum()))
        self._local.improve_regions(self._local.best or start, times * self._work, self._deadline)

    def _balanced_starts(self) -> list[State]:
        """Return balanced starts, until one fits into memory."""
        part = _WORK_TO_BALANCE if self._local.has_regions else _WORK_WITHOUT_REGIONS
        work = int(self._work * part) + 1
        starts: list[State] = []
        for options in self._relaxed_plans((1.0, fill) for fill in _FILLS):
            for giants_first in (False, True):
                if self._ended:
                    return starts
                starts.append(self._local.balanced_start(options, work, giants_first))
            if self._local.best is not None:
                break
        return starts

    def _search_locally(self, starts: list[State]) -> None:
        """Raise the bound with the provers of step 5, then run local search (step 6)."""
        local = self._local
        starts.sort(key=lambda state: (state.best_rating, state.cost.sum()))
        if local.best is None:
            work = int(_WORK_TO_FIT * self._work) + 1
            starts.insert(0, local.start_that_fits(work, self._deadline))
        self._bound_by_hosts()
        self._bound_by_patterns(0, _WORK_OF_PATTERNS)
        options = self._bound_by_devices()
        if options is not None:
            starts.insert(0, self._start_at(options))
        for run, (temperature, doublings) in enumerate(_RUNS):
            if run == 1 and not self._ended:
                self._bound_by_patterns(_BRANCHES, _WORK_OF_BRANCHES)
            last = run == len(_RUNS) - 1
            if last:
                self._bound_by_devices()
            if math.isinf(self.proven):
                return
            start = starts[run % min(len(starts), _STARTS)]
            if local.best is not None and self._within(_NEARLY):
                start, (temperature, doublings) = local.best, _RUN_NEARBY
            elif local.best is not None and last:
                start = local.best
            state = local.resume(start, doublings)
            for part in parts_of_run(state, self._work / len(_RUNS)):
                if self._ended:
                    return
                local.improve(state, *part, temperature)

    @property
    def _ended(self) -> bool:
        return self._near_enough or self._deadline.passed

    @property
    def _near_enough(self) -> bool:
        return self._within(NEAR_ENOUGH)

    def _within(self, part: float) -> bool:
        return self._local.best_rating <= self.proven * (1 + part)

    def _start_at(self, options: Ints) -> State:
        return self._local.start_at(options, int(self._work * _WORK_PER_START) + 1)

    def _relaxed_plans(self, limits: Iterable[tuple[float, float]]) -> Iterator[Ints]:
        """Yield distinct choices of options, shape (T,), from relaxed plans.

        `limits` has the largest shard, as a part of the bound, and the part of memory to use.
        """
        relaxation = LinearRelaxation(self._found)
        seen = set()
        for part, fill in limits:
            if self._deadline.passed:
                return
            limit = part * self.proven if self.proven else math.inf
            cost, options = relaxation.solve(limit, self._deadline, fill)
            if fill < 1 and cost >= self._local.best_rating:
                continue  # a relaxed plan with less free memory is no worse
            if math.isfinite(cost) and (options >= 0).all() and options.tobytes() not in seen:
                seen.add(options.tobytes())
                yield options

    def _rule_out(self) -> None:
        """Raise the bound by presolve, and drop options that no better plan can contain."""
        self._local.bound, self._found = presolve_bound(
            self._found, self.proven, self._local.best_rating, self._deadline
        )
        self._local.restrict(self._found)

    def _solve(self, share: float) -> None:
        """Do a share of the work of branch and bound, if the problem is small enough for it."""
        exact, local = self._exact, self._local
        if exact is None or self._within(NO_BETTER):
            return
        self._proofs["branch and bound over all options and ranks"] = None
        work = math.ceil(share * _EXACT_SHARE * self._work)
        exact.run(self.proven, local.best_rating, work, self._deadline)
        local.best_rating = min(exact.rating, local.best_rating)
        local.bound = max(exact.least, local.bound)

    def _bound_by_hosts(self) -> None:
        """Raise the bound by the integer programme by host, or prove that there is no plan."""
        unknown = self._local.best is None or worth_patterns(self._found)
        if unknown and worth_integers(self._found):
            self._proofs["an integer programme by host"] = None
            soon = self._deadline.after(_SHARE_OF_INTEGERS)
            whole = integer_bound(self._found, self.proven, soon)
            self._local.bound = max(self.proven, whole.milliseconds)

    def _bound_by_devices(self) -> Ints | None:
        """Raise the bound by the integer programme by device, if a plan is known.

        Return the options of its best solution, which fit in each host's memory, or None.
        """
        local = self._local
        if local.best is None or self._near_enough or not worth_integers(self._found):
            return None
        self._proofs["an integer programme by host and device"] = None
        soon = self._deadline.after(_SHARE_OF_INTEGERS)
        found = single_device_bound(self._found, self.proven, local.best_rating, soon)
        local.bound = found.milliseconds
        return found.options if (found.options >= 0).all() else None

    def _bound_by_patterns(self, branches: int, work: int) -> None:
        """Raise the bound by patterns, or prove that there is no plan."""
        if not worth_patterns(self._found):
            return
        self._proofs["patterns of devices"] = None
        if self._deadline.seconds is not None:
            work = min(work, int(_PATTERNS_PER_SECOND * self._deadline.seconds) + 1)
        local = self._local
        local.bound = pattern_bound(self._found, self.proven, local.best_rating, branches, work)
