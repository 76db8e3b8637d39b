"""The search for a plan near a proven bound."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.proposers import (
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.types import Proposer

from planners.embedding.search.bin_proposer import BinProposer
from planners.embedding.search.bound import (
    Bound,
    LinearRelaxation,
    integer_bound,
    linear_bound,
    worth_integers,
)
from planners.embedding.search.candidates import Candidates, candidates
from planners.embedding.search.local_search import (
    State,
    Tables,
    construct,
    empty_state,
    improve,
    tables_of,
)
from planners.embedding.search.outcome import Found, NotFound
from planners.embedding.search.partition import rules_of
from planners.embedding.search.same_plan import SamePlan
from planners.embedding.search.space import Devices, Floats, Ints, Placement, SearchSpace

NEAR_ENOUGH = 0.005
"""A plan that is proven to be this near the best one, as a part of the bound, ends the search."""

# A start leaves out options with shards above one of these parts of the bound: without giants in
# it, the relaxed plan can be placed nearly as it is.
_LARGEST_PARTS = (1.0, 0.8, 0.65, 0.5, 0.4, 0.3)

# The runs of the search, each from another start and the last one from the best plan: the
# temperature of a run for few tables, and how often the power of perf is doubled in it. Cold and
# steep is best where memory is plenty, hot and flat where it is scarce.
_RUNS = ((0.1, 2), (1.0, 0), (1.0, 0), (0.1, 2))
_STARTS = 3  # how many of the best starts the runs go on from
_TABLES_AT_FULL_HEAT = 32

_ROUNDS_PER_START = 0.02  # as a part of all rounds
_ROUNDS_AT_ONCE = 2048  # the clock is looked at in between

# Torchrec's own proposals are all tried where there are at most so many tables times ranks.
_MOST_PROPOSED = 10_000


def best_plan(
    space: SearchSpace,
    devices: Devices,
    seconds: float | None = None,
    seed: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> Found | NotFound:
    """Return a plan as near the bound as the time allows; the same one for the same seed.

    How long it searches is counted in rounds, as many as usually take `seconds`; a machine so slow
    that the clock ends the search before may find another plan. No plan is worse than those that
    torchrec's proposals lead to, as far as these are tried: all of them on small problems and where
    nothing else is found, the uniform ones on large problems.
    """
    found = candidates(space, devices)
    bound = linear_bound(space, devices, found)
    if not math.isfinite(bound.milliseconds):
        return NotFound(None, None, 0)
    seconds = usual_seconds(space, devices) if seconds is None else seconds
    small = space.tables * devices.ranks <= _MOST_PROPOSED
    proposed = _proposed(space, devices, small)
    rounds = 0
    if (np.bincount(space.group) == 1).all():  # dependent tables are left to torchrec's proposals
        search = _LocalSearch(space, devices, found, bound, proposed, seconds, seed, clock)
        search.run()
        proposed, rounds = search.outcome(), search.rounds
    if isinstance(proposed, NotFound) and not small:
        proposed = _proposed(space, devices, everything=True)
    if isinstance(proposed, NotFound):
        return NotFound(proposed.smallest, proposed.last, proposed.proposals + rounds)
    return proposed


def usual_seconds(space: SearchSpace, devices: Devices) -> float:
    """Return how long a search of this size takes unless it is told otherwise."""
    return min(0.5 + space.tables * (16 + devices.ranks) / 1500, 7.0)


def _proposed(space: SearchSpace, devices: Devices, everything: bool) -> Found | NotFound:
    """Return the best plan that torchrec's proposals lead to."""
    proposers: list[Proposer] = [UniformProposer()]
    if everything:
        greedy = (GreedyProposer(), GreedyProposer(use_depth=False))
        proposers += [*greedy, GridSearchProposer(), BinProposer()]
    rules = rules_of(GreedyPerfPartitioner())
    assert rules is not None
    return SamePlan(proposers, rules)(space, devices)


@dataclass(frozen=True, slots=True)
class _Start:
    """A relaxed plan that has been placed, and a little improved."""

    state: State

    @property
    def rank(self) -> tuple[float, float]:
        """What starts are sorted by: the best rating, and the cost where nothing fits yet."""
        return self.state.best_rating, float(self.state.cost.sum())


class _LocalSearch:
    """Goes on from the relaxed plans whose placement is most promising."""

    def __init__(
        self,
        space: SearchSpace,
        devices: Devices,
        found: Candidates,
        bound: Bound,
        proposed: Found | NotFound,
        seconds: float,
        seed: int,
        clock: Callable[[], float],
    ) -> None:
        self._space, self._devices, self._found = space, devices, found
        self._clock = clock
        self._deadline = clock() + seconds
        self._bound = bound
        self._proposed = proposed
        self._seed = seed
        self._tables = tables_of(space, devices, found)
        # As many as take 0.8 of the time on one core of 2 GHz.
        self._all_rounds = max(int(seconds * 2e6 / (24 + devices.ranks)), _ROUNDS_AT_ONCE)
        self.rounds = 0
        self._best = self._empty()
        if isinstance(proposed, Found):
            self._best.figures[:] = self._figures(proposed.rating)

    @property
    def _near_enough(self) -> bool:
        return self._best.best_rating <= self._bound.milliseconds * (1 + NEAR_ENOUGH)

    def run(self) -> None:
        """Search until the best plan is near enough, all rounds are done, or the time is up."""
        if self._near_enough:
            return
        starts = sorted(map(self._start, self._relaxed_plans()), key=lambda start: start.rank)
        if worth_integers(self._devices, self._found) and not self._near_enough:
            whole = integer_bound(
                self._space, self._devices, self._found, self._bound.milliseconds
            )
            self._bound = max(self._bound, whole, key=lambda bound: bound.milliseconds)
        for run, (temperature, doublings) in enumerate(_RUNS):
            last = run == len(_RUNS) - 1 and self._best.best_chosen[0] >= 0
            start = self._best if last else starts[run % min(len(starts), _STARTS)].state
            state = self._continued(start, doublings)
            rounds = self._all_rounds // len(_RUNS)
            for done in range(0, rounds, _ROUNDS_AT_ONCE):
                if self._near_enough or self._clock() > self._deadline:
                    return
                self._improve(state, min(_ROUNDS_AT_ONCE, rounds - done), done / rounds, temperature)

    def outcome(self) -> Found | NotFound:
        """Return the best plan."""
        best = self._best
        proposals = self._proposed.proposals + self.rounds
        if best.best_chosen[0] < 0:
            if isinstance(self._proposed, NotFound):
                return NotFound(self._proposed.smallest, self._proposed.last, proposals)
            return self._proposed
        space = self._space
        ranks = np.concatenate(
            [
                best.best_ranks[slot : slot + space.first_shard[option + 1] - space.first_shard[option]]
                for slot, option in zip(self._tables.slot, best.best_chosen, strict=False)
            ]
        )
        estimates = np.concatenate(
            [
                space.estimate[space.first_shard[option] : space.first_shard[option + 1]]
                for option in best.best_chosen
            ]
        )
        perf = np.zeros(self._devices.ranks)
        np.add.at(perf, ranks, space.total[estimates])  # shard after shard, as torchrec adds them
        return Found(best.best_chosen.copy(), ranks, float(perf.max()), proposals, proposals)

    def _relaxed_plans(self) -> Iterator[Ints]:
        """Yield different choices of options that fit in sum, the cheapest first."""
        relaxation = LinearRelaxation(self._space, self._devices, self._found)
        seen = set()
        for part in _LARGEST_PARTS:
            cost, options = relaxation.solve(part * self._bound.milliseconds)
            if math.isfinite(cost) and (options >= 0).all() and options.tobytes() not in seen:
                seen.add(options.tobytes())
                yield options
        if not seen:
            yield self._bound.options

    def _start(self, options: Ints) -> _Start:
        state = self._empty()
        construct(self._tables, state, self._order(options), options)
        self._improve(state, int(self._all_rounds * _ROUNDS_PER_START) + 1, 0.7, 1.0)
        return _Start(state)

    def _order(self, options: Ints) -> Ints:
        """Return the tables as they are placed: those with least choice first, then the largest."""
        space = self._space
        first = space.estimate[space.first_shard[options]]
        parts = (space.storage[first] * self._tables.share.max(0)).max(1)
        size = np.maximum(parts, space.total[first] / self._bound.milliseconds)
        choice = np.select(
            [space.placement[options] == Placement.UNIFORM, space.placement[options] == Placement.DEVICE],
            [0, 2],
            1,
        )
        return np.lexsort((-size, choice))

    def _empty(self) -> State:
        self._seed += 1
        state = empty_state(self._tables, self._seed)
        state.figures[:] = self._figures(math.inf)
        return state

    def _figures(self, rating: float) -> Floats:
        ...
