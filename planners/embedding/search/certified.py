"""The search for a plan near a proven bound."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

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
from planners.embedding.search.local_search import construct, improve
from planners.embedding.search.local_state import State, aim, empty_state, tables_of
from planners.embedding.search.outcome import Found, NotFound
from planners.embedding.search.partition import rules_of
from planners.embedding.search.same_plan import SamePlan
from planners.embedding.search.space import Devices, Ints, Placement, SearchSpace

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

    How long it searches is counted in rounds, as many as usually take `seconds`. Where these are
    given, the clock also ends it, and a machine slow enough for that may find another plan.

    No plan is worse than those that torchrec's proposals lead to, as far as these are tried: the
    uniform ones on large problems, and all of them on small ones and where nothing else is found.
    """
    found = candidates(space, devices)
    bound = linear_bound(space, devices, found)
    if not math.isfinite(bound.milliseconds):
        return NotFound(None, None, 0)
    deadline = math.inf if seconds is None else clock() + seconds
    rounds = usual_rounds(space, devices, seconds)
    local = _can_be_placed_locally(space, devices)
    everything = not local or space.tables * devices.ranks <= _MOST_PROPOSED
    proposed = _proposed(space, devices, everything)
    done = 0
    if local:
        search = _LocalSearch(space, devices, found, bound, proposed, rounds, seed)
        search.run(lambda: clock() > deadline)
        proposed, done = search.outcome(), search.rounds
    if isinstance(proposed, NotFound) and not everything:
        proposed = _proposed(space, devices, everything=True)
    if isinstance(proposed, NotFound):
        return NotFound(proposed.smallest, proposed.last, proposed.proposals + done)
    return proposed


def usual_rounds(space: SearchSpace, devices: Devices, seconds: float | None = None) -> int:
    """Return how many rounds usually take so long, or, without a time, are usually enough.

    A round took 1.3 times as long on one core of the cloud machine on which this was measured.
    """
    if seconds is None:
        seconds = min(0.5 + space.tables * (16 + devices.ranks) / 1500, 5.0)
    return max(int(seconds * 5e6 / (32 + devices.ranks)), _ROUNDS_AT_ONCE)


def _can_be_placed_locally(space: SearchSpace, devices: Devices) -> bool:
    """Whether the local search can place this; the rest is left to torchrec's proposals.

    It places tables that do not depend on each other, looks at HBM and DDR alone, and does not know
    of devices that are overfull at first, to which torchrec gives nothing at all.
    """
    one_by_one = (np.bincount(space.group) == 1).all()
    return bool(one_by_one and not space.storage[:, 2].any() and (devices.storage >= 0).all())


def _proposed(space: SearchSpace, devices: Devices, everything: bool) -> Found | NotFound:
    """Return the best plan that torchrec's proposals lead to."""
    proposers: list[Proposer] = [UniformProposer()]
    if everything:
        greedy = (GreedyProposer(), GreedyProposer(use_depth=False))
        proposers += [*greedy, GridSearchProposer()]
        if (devices.storage.sum(0) >= 0).all():  # there is memory to cut into bins
            proposers.append(BinProposer())
    rules = rules_of(GreedyPerfPartitioner())
    assert rules is not None
    return SamePlan(proposers, rules)(space, devices)


class _LocalSearch:
    """Goes on from the relaxed plans whose placement is most promising."""

    def __init__(
        self,
        space: SearchSpace,
        devices: Devices,
        found: Candidates,
        bound: Bound,
        proposed: Found | NotFound,
        rounds: int,
        seed: int,
    ) -> None:
        self._space, self._devices, self._found = space, devices, found
        self._bound = bound
        self._proposed = proposed
        self._seed = seed
        self._tables = tables_of(space, devices, found)
        self._all_rounds = rounds
        self._states = 0
        self.rounds = 0
        self._best: State | None = None
        self._best_rating = proposed.rating if isinstance(proposed, Found) else math.inf

    @property
    def _near_enough(self) -> bool:
        return self._best_rating <= self._bound.milliseconds * (1 + NEAR_ENOUGH)

    @property
    def _scale(self) -> float:
        """Milliseconds to measure ranks by: the bound, unless that is zero."""
        dearest = float(self._space.largest_shard[self._found.options].max())
        return self._bound.milliseconds or dearest or 1.0

    def run(self, time_is_up: Callable[[], bool]) -> None:
        """Search until the best plan is near enough, all rounds are done, or the time is up."""
        starts = []
        for options in self._relaxed_plans():
            if self._near_enough or time_is_up():
                return
            starts.append(self._start(options))
        if not starts:  # what is wanted of memory is so near to all of it that the solver gives up
            return
        starts.sort(key=lambda state: (state.best_rating, state.cost.sum()))
        if worth_integers(self._devices, self._found):
            least = self._bound.milliseconds
            whole = integer_bound(self._space, self._devices, self._found, least)
            self._bound = max(self._bound, whole, key=lambda bound: bound.milliseconds)
        rounds = self._all_rounds // len(_RUNS)
        for run, (temperature, doublings) in enumerate(_RUNS):
            start = starts[run % min(len(starts), _STARTS)]
            if run == len(_RUNS) - 1 and self._best is not None:
                start = self._best
            state = self._continued(start, doublings)
            for done in range(0, rounds, _ROUNDS_AT_ONCE):
                if self._near_enough or time_is_up():
                    return
                end = min(done + _ROUNDS_AT_ONCE, rounds)
                self._improve(state, end - done, done / rounds, end / rounds, temperature)

    def _start(self, options: Ints) -> State:
        """Return a relaxed plan, placed, and a little improved."""
        state = self._empty(doublings=0)
        construct(self._tables, state, self._order(options), options)
        rounds = int(self._all_rounds * _ROUNDS_PER_START) + 1
        self._improve(state, rounds, 0.7, 0.9, temperature=1.0)
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
        state = empty_state(self._tables, [self._seed, self._states])
        aim(state, self._best_rating, self._scale, doublings)
        return state

    def _improve(
        self, state: State, rounds: int, begin: float, end: float, temperature: float
    ) -> None:
        heat = temperature * min(1.0, _TABLES_AT_FULL_HEAT / self._space.tables)
        improve(self._tables, state, rounds, begin, end, heat)
        self.rounds += rounds
        if state.best_rating < self._best_rating:
            self._best, self._best_rating = state, state.best_rating

    def outcome(self) -> Found | NotFound:
        """Return the best plan, which may be the proposed one."""
        proposals = self._proposed.proposals + self.rounds
        if self._best is None:
            return replace(self._proposed, proposals=proposals)
        space, chosen = self._space, self._best.best_chosen
        shards = [slice(*space.first_shard[option : option + 2]) for option in chosen]
        ranks = np.concatenate(
            [
                self._best.best_ranks[slot : slot + shard.stop - shard.start]
                for slot, shard in zip(self._tables.slot, shards, strict=False)
            ]
        )
        estimates = np.concatenate([space.estimate[shard] for shard in shards])
        perf = np.zeros(self._devices.ranks)
        np.add.at(perf, ranks, space.total[estimates])  # shard after shard, as torchrec adds them
        return Found(chosen.copy(), ranks, float(perf.max()), proposals, proposals)

    def _relaxed_plans(self) -> Iterator[Ints]:
        """Yield different choices of options that fit in sum, the cheapest first."""
        relaxation = LinearRelaxation(self._space, self._devices, self._found)
        seen = set()
        for part in _LARGEST_PARTS:
            cost, options = relaxation.solve(part * self._bound.milliseconds)
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
