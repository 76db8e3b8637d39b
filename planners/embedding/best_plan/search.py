"""Searches for a plan with a rating close to a proven lower bound.

1. Sort the options, and drop those that torchrec refuses.
2. Try torchrec's proposals: on small problems all of them; else the uniform ones, as step 8.
3. Prove a bound with the linear programme; if it is infinite, no plan exists.
4. Place solutions of the linear programme and improve them a little; they become the starts.
5. Rule out options again, now with a better plan known, and raise the bound by patterns.
6. Run the local search from a start.
7. Pack whole shards on single ranks, which raises the bound and often finds a better plan; then
   run the local search twice more, from the best plan or other starts.
8. On large problems, try torchrec's uniform proposals unless the bound excludes them.
9. Take options with fewer sharding types that fit in the place of the others.

The search ends as soon as a plan is within NEAR_ENOUGH of the bound. Limits are counts of work, so
that results do not depend on the machine; with a time limit, the clock also ends each step.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.insertion import Figure, State
from planners.embedding.best_plan.linear import LinearProgramme
from planners.embedding.best_plan.local import LocalSearch
from planners.embedding.best_plan.packing import WORK
from planners.embedding.best_plan.proofs import RUNGS, Proof, proofs, untried
from planners.embedding.best_plan.rounds import SAMPLE
from planners.embedding.best_plan.torchrec_rules import (
    can_be_placed_locally,
    canonical_order,
    least_uniform,
    proposed,
    with_fewest_types,
)
from planners.embedding.search import warm_up
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import (
    Devices,
    Ints,
    SearchSpace,
    search_space,
)

NEAR_ENOUGH = 0.005
"""A plan within this part of the bound ends the search: estimates are not that exact."""

MOST_FOR_ALL_PROPOSALS = 1_000_000
"""Tables times ranks up to which all of torchrec's proposals are tried if no plan was found."""

# Up to this number of tables times ranks, all of torchrec's proposals are tried, in a fraction of a
# second. On larger problems they would take more time than the local search.
_MOST_PROPOSED = 10_000

# Up to this number of tables times ranks, a plan that is near enough is often proven best.
_MOST_PROVEN = 1_000

WORK_PER_SECOND = 120e6
"""Ratings of a rank in a second of CPU: 120 to 175 million on one core of a cloud machine."""

_NEARLY = 0.02
"""From a plan within this part of the bound, a high temperature only makes plans worse."""


class _Schedule(NamedTuple):
    """The starts and runs of the local search; works are parts of `usual_work`.

    Each start is a relaxed plan without shards above a part of the bound, in a part of the memory.
    Small shards can be placed nearly unchanged; the best part differs between problems.
    A run has a temperature, and doublings of the power of perf (see insertion.rank_cost).
    """

    starts: Sequence[tuple[float, float]]
    start_work: float
    start_heat: float
    runs: Sequence[tuple[float, int]]


# A high temperature and a low power are best if memory is scarce.
_ON_FEW_RANKS = _Schedule(
    starts=[(part, 1.0) for part in (math.inf, 1.0, 0.8, 0.65, 0.5, 0.4, 0.3)],
    start_work=0.02,
    start_heat=0.3,
    runs=[(2.0, 0), (2.0, 0), (0.1, 2)],
)
# On many ranks, memory that is left counts, and rounds are too few for high temperatures.
_ON_MANY_RANKS = _Schedule(
    starts=[(1.0, fill) for fill in (1.0, 0.99, 0.98, 0.96, 0.93, 0.9)],
    start_work=0.05,
    start_heat=0.02,
    runs=[(0.1, 2)] * 3,
)


def best_plan(
    space: SearchSpace, devices: Devices, deadline: Deadline | None = None, seed: int = 0
) -> Found | NotFound:
    """Search for the plan with the lowest rating, and for a lower bound on all ratings.

    The same seed gives the same plan, for any order of a table's options. The search ends after a
    fixed amount of work, or at the deadline with the best plan so far, if any. The plan is never
    worse than those of torchrec's UniformProposer; on small problems, or if nothing else is found
    with up to MOST_FOR_ALL_PROPOSALS tables times ranks, never worse than those of all torchrec's
    proposers. Of plans with equal ratings, it prefers those with few sharding types in each module.
    """
    warm_up.ready(warm_up.BEST_PLAN)
    order = canonical_order(space)
    reordered = search_space([space.options[number] for number in order.tolist()])
    outcome = search_in_order(reordered, devices, deadline or Deadline(), seed)
    if isinstance(outcome, Found):
        return replace(outcome, options=order[outcome.options])
    smallest, last = (
        None if row is None else order[row] for row in (outcome.smallest, outcome.last)
    )
    return replace(outcome, smallest=smallest, last=last)


def search_in_order(
    space: SearchSpace,
    devices: Devices,
    deadline: Deadline,
    seed: int = 0,
    known: Found | None = None,
) -> Found | NotFound:
    """Search as `best_plan` does, for options in canonical order; `known` is a plan that fits.

    It reads the arrays alone, so a caller may change the estimates in them.
    """
    # 2. Torchrec's proposals, if a search of them is short, or all that there is.
    size, local = space.tables * devices.ranks, can_be_placed_locally(space, devices)
    everything = size <= _MOST_PROPOSED or not local
    outcome: Found | NotFound = known or NotFound(None, None, 0)
    if everything and known is None:
        outcome = proposed(space, devices, everything, deadline)
    proven, rounds, tried = 0.0, 0, []
    if not deadline.passed:
        # 3. A bound, or a proof that there is no plan.
        proof = next(proofs(candidates(space, devices), deadline=deadline))
        proven, tried = proof.milliseconds, ["for a proof, the linear programme"]
        if math.isinf(proven):
            return NotFound(None, None, 0, math.inf)
        if local:
            # 4 to 7. The local search, and the other proofs.
            search = _Search(proof, outcome, seed, deadline)
            search.run()
            proven, rounds, tried = search.local.bound, search.local.rounds, search.tried()
            if best := search.local.best:
                count = outcome.proposals + rounds
                outcome = replace(best, proposals=count, partitions=best.partitions or count)
    # 8. Torchrec's proposals for large problems: the uniform ones, and all if no plan is known.
    rating = outcome.rating if isinstance(outcome, Found) else math.inf
    if not everything and max(least_uniform(space, devices), proven) < rating:
        uniform = proposed(space, devices, everything=False, deadline=deadline)
        if isinstance(uniform, Found) and uniform.rating < rating:
            outcome = uniform
    if isinstance(outcome, NotFound) and size <= MOST_FOR_ALL_PROPOSALS and not everything:
        outcome = proposed(space, devices, everything=True, deadline=deadline)
    # 9. Fewer sharding types.
    if isinstance(outcome, Found):
        outcome = with_fewest_types(space, devices, outcome)
        return replace(outcome, bound=min(proven, outcome.rating))
    late = ["until the time was up"] if deadline.passed else []
    words = [f"{outcome.proposals} proposals of TorchRec", *tried, *late]
    count = outcome.proposals + rounds
    return replace(outcome, proposals=count, bound=proven, tried="; ".join(words))


def usual_work(space: SearchSpace, devices: Devices, limit: float | None = None) -> int:
    """Return the work of the local search: enough for most problems, or for `limit` seconds.

    One unit of work is one rating of a rank.
    """
    # With a limit, proofs and proposals need half of it. Without, this is fitted to the time after
    # which gaps hardly shrink; a user waits about 5 s at most, longer for a million tables times
    # ranks.
    if limit is not None:
        seconds = limit / 2
    else:
        most = 4.0 + 3e-7 * space.tables * devices.ranks
        seconds = min(0.5 + space.tables * (16 + devices.ranks) / 1500, most)
    return int(seconds * WORK_PER_SECOND) + 1


class _Search:
    """Steps 4 to 7 of the module docstring, from a first proof and torchrec's proposals."""

    def __init__(
        self, proof: Proof, proposed: Found | NotFound, seed: int, deadline: Deadline
    ) -> None:
        best = proposed if isinstance(proposed, Found) else None
        self.local = LocalSearch(proof.candidates, proof.milliseconds, seed, best)
        self._candidates, self._deadline = proof.candidates, deadline
        space, devices = proof.candidates.space, proof.candidates.devices
        self._work = usual_work(space, devices, deadline.seconds)
        self._is_small = space.tables * devices.ranks <= _MOST_PROVEN
        self._schedule = _ON_MANY_RANKS if devices.ranks > SAMPLE else _ON_FEW_RANKS
        self._rungs = [proof.rung]  # those that ran, in order

    def run(self) -> None:
        """Search until the best plan is near enough, all work is done, or the deadline passes."""
        # 4. Starts.
        self._prove("costs")
        starts: list[State] = []
        work = int(self._work * self._schedule.start_work) + 1
        for options in self._relaxed_plans():
            if self._ended():
                break
            state = self.local.start_at(options)
            self.local.run(state, work, self._schedule.start_heat, self._ended)
            starts.append(state)
        # 5. The bound again.
        if not self._ended():
            self._prove("costs", "patterns")
        # 6 and 7. Runs of the local search, with packing in between.
        if not self._ended():
            self._search_locally(starts)
        if "ranks" not in self._rungs and self._is_small:
            self._pack(WORK / 10)  # near enough: little time proves a small problem's best plan

    def tried(self) -> list[str]:
        """Return phrases that describe the searches and proofs that ran, for messages."""
        local, missing = self.local, untried(self._candidates)
        *names, last = [RUNGS[rung] for rung in self._rungs]
        rungs = " and ".join(filter(None, [", ".join(names), last]))
        return [
            f"{local.rounds} rounds of local search from {local.starts} starts",
            f"for a proof, {rungs}",
            *filter(None, [missing]),
        ]

    def _search_locally(self, starts: list[State]) -> None:
        """Run the local search from the best starts, with stronger proofs before and between."""
        local = self.local
        starts.sort(key=lambda state: (state.figures[Figure.BEST], state.cost.sum()))
        if not any(state.best.options[0] >= 0 for state in starts):
            if local.best:
                starts.insert(0, local.start_from(local.best.options, local.best.ranks))
            else:
                work = int(self._work / 5) + 1
                starts.insert(0, local.start_that_fits(work, self._ended))
        runs = self._schedule.runs
        for run, (heat, doublings) in enumerate(runs):
            if run == 1 and not self._ended():
                self._pack(WORK)
            if self._ended():
                return
            near = self._within(_NEARLY)
            if near:
                heat, doublings = 0.1, 4
            if local.best and (near or run == len(runs) - 1):
                state = local.start_from(local.best.options, local.best.ranks, doublings)
            else:
                state = local.resume(starts[run % len(starts)], doublings)
            local.run(state, self._work / len(runs), heat, self._ended)

    def _pack(self, work: float) -> None:
        """Prove the bound by packing, unless the best plan is already proven best."""
        if not self._within(1e-10) and not self._deadline.passed:
            self._prove("costs", "ranks", work=work)

    def _prove(self, *rungs: str, work: float = WORK) -> None:
        """Raise the bound, keep the options of better plans, and record a plan of the proofs."""
        local = self.local
        hint = (local.best.options, local.best.ranks) if local.best else None
        ladder = proofs(
            self._candidates,
            self.local.bound,
            local.best_rating,
            self._deadline,
            hint=hint,
            rungs=rungs,
            work=work,
        )
        for proof in ladder:
            if proof.rung not in self._rungs:
                self._rungs.append(proof.rung)
            local.bound = proof.milliseconds
            if proof.candidates is not self._candidates:
                self._candidates = proof.candidates
                local.restrict(proof.candidates)
            if proof.plan is not None:
                local.start_from(*proof.plan)

    def _relaxed_plans(self) -> Iterator[Ints]:
        """Yield distinct options of the tables, shape (T,), from plans that are easy to place."""
        devices, programme, filled = self._candidates.devices, None, 1.0
        seen = set()
        for part, fill in self._schedule.starts:
            if self._deadline.passed:
                return
            if programme is None or fill != filled:
                parts = replace(devices, storage=(devices.storage * fill).astype(np.int64))
                programme, filled = LinearProgramme(replace(self._candidates, devices=parts)), fill
            limit = part * self.local.bound if self.local.bound else math.inf
            cost, options = programme.solve(limit, self._deadline)
            if math.isfinite(cost) and (options >= 0).all() and options.tobytes() not in seen:
                seen.add(options.tobytes())
                yield options

    def _ended(self) -> bool:
        return self._within(NEAR_ENOUGH) or self._deadline.passed

    def _within(self, part: float) -> bool:
        return self.local.best_rating <= self.local.bound * (1 + part)
