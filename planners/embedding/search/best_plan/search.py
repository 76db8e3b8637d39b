"""The search for a plan near a proven bound."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from torchrec.distributed.planner.proposers import (
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.types import Proposer

from planners.embedding.search.best_plan.bounds.bound import (
    LowerBound,
    integer_bound,
    linear_bound,
    lower_bound,
    worth_integers,
)
from planners.embedding.search.best_plan.bounds.configuration import pattern_bound, worth_patterns
from planners.embedding.search.best_plan.bounds.programmes import LinearRelaxation
from planners.embedding.search.best_plan.candidates import Candidates, candidates
from planners.embedding.search.best_plan.exact import NO_BETTER, ExactSearch, worth_exact
from planners.embedding.search.best_plan.local_search import construct, improve
from planners.embedding.search.best_plan.local_state import State, local_tables, new_state
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.same_plan.bin_proposer import BinProposer
from planners.embedding.search.same_plan.partition import PartitionRules
from planners.embedding.search.same_plan.search import SamePlan
from planners.embedding.search.space import Devices, Ints, Placement, SearchSpace, search_space

NEAR_ENOUGH = 0.005
"""A plan that is proven to be this near the best one, as a part of the bound, ends the search."""

# From a plan that is this near, heat only leads away: it is gone on from, cold and steep.
_NEARLY = 0.02
_RUN_NEARBY = (0.1, 4)

# A start leaves out options with shards above one of these parts of the bound: without giants in
# it, the relaxed plan can be placed nearly as it is.
_LARGEST_PARTS = (1.0, 0.8, 0.65, 0.5, 0.4, 0.3)

# The runs of the search, each from another start and the last one from the best plan: the
# temperature of a run for few tables, and how often the power of perf is doubled in it. Cold and
# steep is best where memory is plenty, hot and flat where it is scarce.
_RUNS = ((0.1, 2), (1.0, 0), (1.0, 0), (0.1, 2))
_STARTS = 3  # how many of the best starts the runs go on from
_TABLES_AT_FULL_HEAT = 32

_WORK_PER_START = 0.02  # as a part of all work
_WORK_AT_ONCE = 4_000_000  # the clock is looked at in between

# Ratings of a rank in a second of CPU on one core of the cloud machine on which this was measured,
# where it was 120 to 175 million; and the part of a time limit that is left for them.
_WORK_PER_SECOND = 120e6
_SHARE_OF_LIMIT = 0.7
_EXACT_SHARE = 0.5  # what the exact search of a small problem may take beside the work
_FIRST_EXACT_SHARE = 0.3  # and the part of it that is done before the local search
_SHARE_OF_INTEGERS = 0.2  # and the part of it that the integer programme may take
_MOST_SECONDS = 4.0

# The bound by patterns: without branches first, for this work, then before this run with branches.
_WORK_OF_BOUND = 8_000_000
_MOST_BRANCHES = 200
_RUN_OF_BRANCHES = 2
_PATTERNS_PER_SECOND = 2e6  # of a time limit; a tenth of what is done in it

# Torchrec's own proposals are all tried where there are at most so many tables times ranks.
_MOST_PROPOSED = 10_000


def best_plan(
    space: SearchSpace, devices: Devices, deadline: Deadline | None = None, seed: int = 0
) -> Found | NotFound:
    """Return a plan as near the bound as the time allows; the same one for the same seed.

    How the options of a table are ordered makes no difference. It ends after a count of work
    (`usual_work`), or at the deadline, and then with the best plan so far or none. No plan is worse
    than those of torchrec's proposals: of the uniform ones on large problems, and of all on small
    ones and where nothing else is found.
    """
    order = canonical_order(space)
    reordered = search_space([space.options[number] for number in order.tolist()])
    outcome = _best_plan(reordered, devices, deadline or Deadline(), seed)
    if isinstance(outcome, Found):
        return replace(outcome, options=order[outcome.options])
    smallest, last = (
        None if row is None else order[row] for row in (outcome.smallest, outcome.last)
    )
    return NotFound(smallest, last, outcome.proposals, outcome.bound)


def canonical_order(space: SearchSpace) -> Ints:
    """Return option numbers table after table, those of a table by name and figures, shape (O,).

    Up to torchrec 1.8.0 they are listed in the order of a set, which differs between processes.
    """
    types = [option.sharding_type for option in space.options]
    kernels = [option.compute_kernel for option in space.options]
    figures = (space.option_perf, space.largest_shard, *space.option_storage.T, space.placement)
    return np.lexsort([*reversed(figures), kernels, types, space.table])


def _best_plan(
    space: SearchSpace, devices: Devices, deadline: Deadline, seed: int
) -> Found | NotFound:
    local = can_be_placed_locally(space, devices)
    everything = not local or space.tables * devices.ranks <= _MOST_PROPOSED
    proposed = _proposed(space, devices, everything, deadline)
    done, proven = 0, 0.0
    if not deadline.passed:
        found = candidates(space, devices)
        bound = linear_bound(found, deadline)
        if not math.isfinite(bound.milliseconds):
            return NotFound(None, None, 0, math.inf)
        proven = bound.milliseconds
        if local:
            work = usual_work(space, devices, deadline.seconds)
            if deadline.seconds is not None and worth_exact(found):
                work = math.ceil(work / (1 + _EXACT_SHARE))
            search = _LocalSearch(found, bound, proposed, work, seed)
            search.run(deadline)
            proposed, done, proven = search.outcome(), search.rounds, search.proven
    if isinstance(proposed, NotFound) and not everything:
        proposed = _proposed(space, devices, everything=True, deadline=deadline)
    if isinstance(proposed, NotFound):
        return replace(proposed, proposals=proposed.proposals + done, bound=proven)
    return replace(proposed, bound=min(proven, proposed.rating))


def best_bound(space: SearchSpace, devices: Devices) -> float:
    """Return the best bound on the rating of all plans that is worth its time.

    On small problems the search for the best plan proves more than the bounds that need no plan.
    """
    least = lower_bound(space, devices).milliseconds
    return max(least, searched_bound(space, devices)) if math.isfinite(least) else least


def searched_bound(space: SearchSpace, devices: Devices) -> float:
    """Return what the search for the best plan proves where it can be exact, else 0."""
    if not can_be_placed_locally(space, devices) or not worth_exact(candidates(space, devices)):
        return 0.0
    return best_plan(space, devices).bound


def usual_work(space: SearchSpace, devices: Devices, limit: float | None = None) -> int:
    """Return how many ratings of a rank are usually enough, or usually done within a limit."""
    if limit is not None:
        seconds = _SHARE_OF_LIMIT * limit
    else:
        seconds = min(0.5 + space.tables * (16 + devices.ranks) / 1500, _MOST_SECONDS)
    return int(seconds * _WORK_PER_SECOND) + 1


def can_be_placed_locally(space: SearchSpace, devices: Devices) -> bool:
    """Whether the local search can place this; the rest is left to torchrec's proposals.

    It places tables that do not depend on each other, looks at HBM and DDR alone, and does not know
    of devices that are overfull at first, to which torchrec gives nothing at all.
    """
    one_by_one = (np.bincount(space.group) == 1).all()
    return bool(one_by_one and not space.storage[:, 2].any() and (devices.storage >= 0).all())


def _proposed(
    space: SearchSpace, devices: Devices, everything: bool, deadline: Deadline
) -> Found | NotFound:
    """Return the best plan that torchrec's proposals lead to."""
    proposers: list[Proposer] = [UniformProposer()]
    if everything:
        greedy = (GreedyProposer(), GreedyProposer(use_depth=False))
        proposers += [*greedy, GridSearchProposer()]
        if (devices.storage.sum(0) >= 0).all():  # there is memory to cut into bins
            proposers.append(BinProposer())
    return SamePlan(proposers, PartitionRules(), deadline)(space, devices)


class _LocalSearch:
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
        self._best: State | None = None
        self._best_rating = proposed.rating if isinstance(proposed, Found) else math.inf
        self._exact = ExactSearch(found) if worth_exact(found) else None
        self._exact_work = work * _EXACT_SHARE

    @property
    def proven(self) -> float:
        """Milliseconds that no plan rates below; infinite where there is none."""
        return self._bound.milliseconds

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
        for options in self._relaxed_plans(deadline):
            if self._near_enough or deadline.passed:
                break
            starts.append(self._start(options))
        self._solve(_FIRST_EXACT_SHARE, deadline)
        if not self._near_enough:
            self._search_on(starts, deadline)
            self._solve(1 - _FIRST_EXACT_SHARE, deadline)

    def _solve(self, share: float, deadline: Deadline) -> None:
        """Do a part of the exact search, if the problem is small enough for it."""
        exact = self._exact
        if exact is None or self._best_rating <= self.proven * (1 + NO_BETTER):
            return
        work = math.ceil(share * self._exact_work)
        exact.run(self.proven, self._best_rating, work, deadline)
        if exact.rating < self._best_rating:
            self._best_rating = exact.rating
        if exact.least > self.proven:
            self._bound = replace(self._bound, milliseconds=exact.least)

    def _search_on(self, starts: list[State], deadline: Deadline) -> None:
        """Go on from the best starts."""
        if not starts:  # what is wanted of memory is so near to all of it that the solver gives up
            return
        starts.sort(key=lambda state: (state.best_rating, state.cost.sum()))
        if worth_integers(self._found):
            soon = deadline.after(_SHARE_OF_INTEGERS)
            whole = integer_bound(self._found, self._bound.milliseconds, soon)
            self._bound = max(self._bound, whole, key=lambda bound: bound.milliseconds)
        self._raise_bound(0, _WORK_OF_BOUND, deadline)
        work = self._all_work / len(_RUNS)
        for run, (temperature, doublings) in enumerate(_RUNS):
            if run == _RUN_OF_BRANCHES and not (self._near_enough or deadline.passed):
                unrefuted = self._raise_bound(_MOST_BRANCHES, 3 * _WORK_OF_BOUND, deadline)
                if unrefuted is not None:
                    starts.insert(0, self._start(unrefuted))
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

    def _raise_bound(self, branches: int, work: int, deadline: Deadline) -> Ints | None:
        """Raise the bound by patterns of devices; return options that it found nothing against."""
        if not worth_patterns(self._found):
            return None
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
