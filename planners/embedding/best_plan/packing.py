"""The bound by packing: whole shards on single ranks, decided by OR-tools' CP-SAT solver.

The model has a 0-1 variable for each option and, for each set of equal parts of an option, the
number of them in each place. It minimises the slowest rank's time within the memory of each rank.
The solver works with integers, so time and bytes are rounded down to multiples of a power of two.
Every plan is a solution of the rounded model, so the model's bound holds for all plans.
"""

import logging
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from planners.embedding.best_plan.candidates import ROUNDING, Candidates
from planners.embedding.best_plan.parts import HOST, RANK, parts_of, places, rounds
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Ints, load_of
from planners.highs import solving

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import IntVar

logger = logging.getLogger("shardbench")

Placed = tuple[Ints, Ints]
"""A plan: the option of each table, and the rank of each of their shards, option by option."""

WORK = 2.0
"""CP-SAT's deterministic time for a proof: it takes up to about three times as many seconds."""

_BITS = 40  # times and bytes have at most this many bits, for a proof to 1e-9 without overflow
_MOST_PLACES = 50_000  # larger models hardly get beyond the linear programme in time


def is_installed() -> bool:
    """Whether OR-tools is installed, and this environment's libraries let it be imported."""
    try:
        import ortools.sat.python.cp_model  # noqa: F401
    except ImportError:
        return False
    return True


def worth_packing(candidates: Candidates) -> bool:
    """Whether the parts of all candidates have so few places that CP-SAT can raise the bound."""
    parts, devices = parts_of(candidates.space, candidates.devices), candidates.devices
    of_unit = np.array([devices.ranks, devices.hosts, 1])  # by RANK, HOST and ALL
    before = np.concatenate([[0], np.cumsum(of_unit[parts.unit])])
    options = candidates.options
    places_of = before[parts.first[options + 1]] - before[parts.first[options]]
    return int(places_of.sum()) <= _MOST_PLACES


def packed(
    candidates: Candidates,
    at_least: float,
    at_most: float,
    deadline: Deadline,
    known: Placed | None = None,
    work: float = WORK,
) -> tuple[float, Placed | None]:
    """Return a bound on the ratings of all plans, and a plan that rates below `at_most`, if any.

    Only `candidates` can be options of plans that rate at most `at_most`, the rating of the `known`
    plan. `at_least` is a proven bound. The bound is infinite if it is proven that no plan exists.
    `work` limits CP-SAT's deterministic time.
    """
    from ortools.sat.python import cp_model

    # 1. Solve the model, from the known plan on.
    model = _Model(candidates, at_least, at_most)
    if known is not None:
        model.hint(*known)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2  # bounds rise by the linear programme's cuts
    # A step of presolve adds coefficients as 32-bit integers, which loses plans (google/or-tools
    # issue 5293); without work for it, the step is left out.
    solver.parameters.presolve_inclusion_work_limit = 0
    solver.parameters.catch_sigint_signal = False  # a job's Ctrl-C is its own
    if deadline.seconds is not None:
        work = min(work, 0.2 * deadline.seconds)  # a proof may take three times as many seconds
        solver.parameters.max_time_in_seconds = max(deadline.left, 0.0)
    solver.parameters.max_deterministic_time = work
    with solving:
        status = solver.solve(model.model)
    if status == cp_model.INFEASIBLE and known is None:
        return at_most, None
    # 2. Rate its plan, which may exceed the memory because bytes are rounded down.
    plan, rating = None, at_most
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        plan = model.plan(solver.value)
        load = load_of(candidates.space, *plan, candidates.devices.ranks)
        rating = load.rating if (load.used <= candidates.devices.storage).all() else math.inf
    better = plan if rating < at_most else None
    # 3. A bound above a plan is an error of the solver.
    proven = model.milliseconds(solver.response_proto.inner_objective_lower_bound)
    if status == cp_model.INFEASIBLE or proven > min(rating, at_most) * (1 + 1e-9):
        logger.warning("A proof of CP-SAT contradicts a plan, and is not used.")
        return at_least, better
    return max(at_least, proven), better


class _Lot(NamedTuple):
    """Equal parts of an option, and how many of them are in each place."""

    first: Ints  # the index of each part's first shard among the option's shards, (parts,)
    places: Ints  # the ranks of a part's shards in each place, (places, shards)
    counts: "list[IntVar]"


class _Model:
    """The model of all plans of `candidates` that rate at most `at_most`."""

    def __init__(self, candidates: Candidates, at_least: float, at_most: float) -> None:
        from ortools.sat.python.cp_model import CpModel, LinearExpr

        self._candidates, space = candidates, candidates.space
        self._devices, self._parts = candidates.devices, parts_of(space, candidates.devices)
        most = min(at_most, candidates.any_rating)
        self._unit = _unit(most)
        self._total = np.floor(space.total / self._unit).astype(np.int64)
        self.model = model = CpModel()
        # 1. Each table takes one option, whose parts are in their places.
        self._taken: dict[int, IntVar] = {}
        self._lots: dict[int, list[_Lot]] = {}
        self._hosts: dict[int, list[IntVar]] = {}  # of options whose parts are on one host
        # The variables that put shards on each rank, and the estimates of these shards.
        self._on_rank: list[list[IntVar]] = [[] for _ in range(self._devices.ranks)]
        self._shards: list[list[int]] = [[] for _ in range(self._devices.ranks)]
        for options in np.split(candidates.options, candidates.first[1:-1]):
            for option in options.tolist():
                self._add_option(option)
            model.add_exactly_one([self._taken[option] for option in options.tolist()])
        # 2. Each rank's time is at most the slowest one's, and its bytes fit in its memory.
        least, highest = int(at_least / self._unit), int(most / self._unit) + 1
        self._slowest = model.new_int_var(least, highest, "")
        rows = zip(self._on_rank, self._shards, self._devices.storage.tolist(), strict=True)
        for variables, shards, capacity in rows:
            spent = LinearExpr.weighted_sum(variables, self._total[shards].tolist())
            model.add(spent <= self._slowest)
            for used, whole in zip(space.storage[shards].T, capacity, strict=True):
                if used.any():
                    unit = max(int(_unit(whole)), 1)
                    weights = (used // unit).tolist()
                    model.add(LinearExpr.weighted_sum(variables, weights) <= whole // unit)
        if self._total.any():
            model.minimize(self._slowest)

    def _add_option(self, option: int) -> None:
        """Add the variables of an option: whether it is taken, and where its parts are."""
        model, devices, parts = self.model, self._devices, self._parts
        taken = self._taken[option] = model.new_bool_var("")
        groups = [taken]  # the variables that take all parts: in any places, or those of a host
        if parts.together[option]:
            groups = self._hosts[option] = [model.new_bool_var("") for _ in range(devices.hosts)]
            model.add(sum(groups) == taken)
        self._lots[option] = []
        for run in rounds(parts, devices, option):
            equal: dict[bytes, list[int]] = {}
            for part in run:
                equal.setdefault(self._estimates(part).tobytes(), []).append(part)
            lots = [self._lot(option, same) for same in equal.values()]
            self._lots[option] += lots
            for lot in lots:
                size = devices.host_ranks if parts.together[option] else len(lot.places)
                for number, group in enumerate(groups):
                    here = lot.counts[number * size : (number + 1) * size]
                    model.add(sum(here) == len(lot.first) * group)
            if parts.unit[run[0]] == HOST:
                for of_host in zip(*(lot.counts for lot in lots), strict=True):
                    model.add_at_most_one(of_host)

    def _estimates(self, part: int) -> Ints:
        start = self._parts.shard[part]
        return self._candidates.space.estimate[start : start + self._parts.size[part]]

    def _lot(self, option: int, same: list[int]) -> _Lot:
        """Return equal parts with a variable for each place, which is 0 where they do not fit."""
        space, parts, estimates = self._candidates.space, self._parts, self._estimates(same[0])
        where = places(parts, self._devices, same[0])
        most = len(same) if parts.unit[same[0]] == RANK else 1
        room = self._devices.storage[where]
        fits = np.all(space.storage[estimates] <= room, axis=(1, 2))
        if parts.together[option]:
            fits &= where[:, 0] < self._devices.hosts * self._devices.host_ranks
        counts = [self.model.new_int_var(0, most * fit, "") for fit in fits.tolist()]
        for place in np.flatnonzero(fits).tolist():
            for rank, estimate in zip(where[place].tolist(), estimates.tolist(), strict=True):
                self._on_rank[rank].append(counts[place])
                self._shards[rank].append(estimate)
        return _Lot(parts.shard[same] - space.first_shard[option], where, counts)

    def hint(self, options: Ints, ranks: Ints) -> None:
        """Suggest a plan to the solver: the values of all variables."""
        space, hint = self._candidates.space, self.model.add_hint
        ends = np.cumsum(np.diff(space.first_shard)[options])
        plan = dict(zip(options.tolist(), np.split(ranks, ends[:-1]), strict=True))
        for option, taken in self._taken.items():
            on = plan.get(option)
            hint(taken, on is not None)
            for host, group in enumerate(self._hosts.get(option, [])):
                hint(group, on is not None and on[0] // self._devices.host_ranks == host)
            for lot in self._lots[option]:
                of_parts = ranks[:0] if on is None else on[lot.first]
                times = (of_parts[:, None] == lot.places[:, 0]).sum(axis=0).tolist()
                for variable, count in zip(lot.counts, times, strict=True):
                    hint(variable, count)
        estimates = np.concatenate([space.estimates_of(option) for option in options.tolist()])
        hint(self._slowest, int(np.bincount(ranks, self._total[estimates]).max()))

    def milliseconds(self, units: int) -> float:
        """Return the milliseconds of a bound, rounded down as a rating is at every addition."""
        shards = int(np.diff(self._candidates.space.first_shard)[self._candidates.options].sum())
        return units * self._unit * (1 - (shards + 8) * ROUNDING)

    def plan(self, value: Any) -> Placed:
        """Return the plan of a solution; `value` maps a variable to its value."""
        first = self._candidates.space.first_shard
        options = [option for option, taken in self._taken.items() if value(taken)]
        on_ranks = []
        for option in options:
            ranks = np.empty(first[option + 1] - first[option], np.int64)
            for lot in self._lots[option]:
                of_parts = np.repeat(lot.places, [value(count) for count in lot.counts], axis=0)
                ranks[lot.first[:, None] + np.arange(of_parts.shape[1])] = of_parts
            on_ranks.append(ranks)
        return np.array(options, np.int64), np.concatenate(on_ranks)


def _unit(most: float) -> float:
    """Return the power of two of which `most` is less than 2**_BITS times."""
    return 2.0 ** (math.frexp(most)[1] - _BITS)
