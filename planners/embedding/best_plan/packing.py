"""The bound by packing: whole shards on single ranks, decided by OR-tools' CP-SAT solver.

The model has a 0-1 variable for each option and, for each set of equal parts of an option, the
number of them in each place. It minimises the slowest rank's time within the memory of each rank.
The solver works with integers, so time and bytes are rounded down to multiples of a power of two.
Every plan is a solution of the rounded model, so the model's bound holds for all plans.
"""

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.best_plan.linear import solving
from planners.embedding.best_plan.parts import HOST, RANK, parts_of, places, rounds
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Ints, load_of

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import IntVar

logger = logging.getLogger("shardbench")

Placed = tuple[Ints, Ints]
"""A plan: the option of each table, and the rank of each of their shards, option by option."""

WORK = 2.0
"""CP-SAT's deterministic time for a proof: it takes up to about three times as many seconds."""

_SHARE_OF_LIMIT = 0.2  # the part of a time limit that may be deterministic time

_BITS = 40  # times and bytes have at most this many bits, for a proof to 1e-9 without overflow
_MOST_COLUMNS = 50_000  # larger models hardly get beyond the linear programme in time


def is_installed() -> bool:
    """Whether OR-tools is installed, and this environment's libraries let it be imported."""
    try:
        import ortools.sat.python.cp_model  # noqa: F401
    except ImportError:
        return False
    return True


def columns(candidates: Candidates) -> int:
    """Return the number of places of all parts of all candidates."""
    parts, devices = parts_of(candidates.space, candidates.devices), candidates.devices
    some = [devices.ranks, devices.hosts, 1]
    whole = np.concatenate([[0], np.cumsum(np.array(some)[parts.unit])])
    return int((whole[parts.first[1:]] - whole[parts.first[:-1]])[candidates.options].sum())


def worth_packing(candidates: Candidates) -> bool:
    """Whether a problem is small enough for CP-SAT to raise the bound."""
    return columns(candidates) <= _MOST_COLUMNS


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
        work = min(work, _SHARE_OF_LIMIT * deadline.seconds)
        solver.parameters.max_time_in_seconds = max(deadline.left, 0.0)
    solver.parameters.max_deterministic_time = work
    with solving:
        status = solver.solve(model.model)
    if status == cp_model.INFEASIBLE and known is None:
        return at_most, None
    plan, rating = None, at_most
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        plan = model.plan(solver.value)
        rating = _rating(candidates, *plan)
    better = plan if rating < at_most else None
    proven = model.milliseconds(solver.response_proto.inner_objective_lower_bound)
    if status == cp_model.INFEASIBLE or proven > min(rating, at_most) * (1 + 1e-9):
        logger.warning("A proof of CP-SAT contradicts a plan, and is not used.")
        return at_least, better
    return max(at_least, proven), better


def _rating(candidates: Candidates, options: Ints, ranks: Ints) -> float:
    """Return a plan's rating in ms; infinite if the plan does not fit in exact bytes."""
    load = load_of(candidates.space, options, ranks, candidates.devices.ranks)
    fits = (load.used <= candidates.devices.storage).all()
    return load.rating if fits else math.inf


@dataclass(frozen=True, slots=True)
class _Lot:
    """Equal parts of an option, and how many of them are in each place."""

    first: Ints  # the index of each part's first shard among the option's shards, (parts,)
    places: Ints  # the ranks of a part's shards in each place, (places, shards)
    counts: "list[IntVar]"


class _Model:
    """The model of all plans of `candidates` that rate at most `at_most`."""

    def __init__(self, candidates: Candidates, at_least: float, at_most: float) -> None:
        from ortools.sat.python import cp_model

        self._candidates = candidates
        space, devices = candidates.space, candidates.devices
        self._parts = parts_of(space, devices)
        most = min(at_most, candidates.any_rating)
        self._unit = _unit(most)
        self._total = np.floor(space.total / self._unit).astype(np.int64)
        figures = np.column_stack([space.total, space.storage])
        self._number = np.unique(figures, axis=0, return_inverse=True)[1].ravel()
        self.model = cp_model.CpModel()
        self._lots: dict[int, list[_Lot]] = {}
        self._taken: dict[int, IntVar] = {}
        self._hosts: dict[int, list[IntVar]] = {}  # of options whose parts are on one host
        # The variables that put shards on each rank, and the estimates of these shards.
        self._on_rank: list[list[IntVar]] = [[] for _ in range(devices.ranks)]
        self._shards: list[list[int]] = [[] for _ in range(devices.ranks)]
        for option in candidates.options.tolist():
            self._add_option(option)
        for own in np.split(candidates.options, candidates.first[1:-1]):
            self.model.add_exactly_one([self._taken[option] for option in own.tolist()])
        self._slowest = self.model.new_int_var(
            int(at_least / self._unit), int(most / self._unit) + 1, ""
        )
        self._limit_ranks()
        if self._total.any():
            self.model.minimize(self._slowest)

    def _add_option(self, option: int) -> None:
        """Add the variables of an option: whether it is taken, and where its parts are."""
        parts, devices, model = self._parts, self._candidates.devices, self.model
        taken = self._taken[option] = model.new_bool_var("")
        lots = self._lots.setdefault(option, [])
        hosts = []
        if parts.together[option]:
            hosts = self._hosts[option] = [model.new_bool_var("") for _ in range(devices.hosts)]
            model.add(sum(hosts) == taken)
        for run in rounds(parts, devices, option):
            unit, of_run = parts.unit[run[0]], []
            for same in self._equal(run):
                lot = self._lot(option, same)
                of_run.append(lot)
                count = len(same)
                if hosts:
                    host_of = lot.places[:, 0] // devices.host_ranks
                    for host, on in enumerate(hosts):
                        here = [lot.counts[at] for at in np.flatnonzero(host_of == host).tolist()]
                        model.add(sum(here) == count * on)
                else:
                    model.add(sum(lot.counts) == count * taken)
            if unit == HOST and len(of_run) > 1:
                of_host: dict[int, list[IntVar]] = {}
                for lot in of_run:
                    for place, variable in zip(lot.places[:, 0].tolist(), lot.counts, strict=True):
                        of_host.setdefault(place, []).append(variable)
                for variables in of_host.values():
                    model.add_at_most_one(variables)
            lots += of_run

    def _equal(self, run: range) -> Iterator[list[int]]:
        """Yield the parts of a run in sets of equal ones."""
        sets: dict[bytes, list[int]] = {}
        for part in run:
            start = self._parts.shard[part]
            shards = self._candidates.space.estimate[start : start + self._parts.size[part]]
            sets.setdefault(self._number[shards].tobytes(), []).append(part)
        yield from sets.values()

    def _lot(self, option: int, same: list[int]) -> _Lot:
        """Return equal parts with a variable for each place where they fit."""
        space, devices, parts = self._candidates.space, self._candidates.devices, self._parts
        start, length = int(parts.shard[same[0]]), int(parts.size[same[0]])
        estimates = space.estimate[start : start + length]
        where = places(parts, devices, same[0])
        where = where[(space.storage[estimates] <= devices.storage[where]).all(axis=(1, 2))]
        most = len(same) if parts.unit[same[0]] == RANK else 1
        counts = [self.model.new_int_var(0, most, "") for _ in where]
        for ranks, variable in zip(where.tolist(), counts, strict=True):
            for rank, estimate in zip(ranks, estimates.tolist(), strict=True):
                self._on_rank[rank].append(variable)
                self._shards[rank].append(estimate)
        return _Lot(parts.shard[same] - space.first_shard[option], where, counts)

    def _limit_ranks(self) -> None:
        """Limit each rank's time by that of the slowest one, and its bytes by its memory."""
        from ortools.sat.python.cp_model import LinearExpr

        storage = self._candidates.space.storage
        for rank, capacity in enumerate(self._candidates.devices.storage.tolist()):
            variables, shards = self._on_rank[rank], self._shards[rank]
            if not variables:
                continue
            spent = LinearExpr.weighted_sum(variables, self._total[shards].tolist())
            self.model.add(spent <= self._slowest)
            for kind, whole in enumerate(capacity):
                if storage[shards, kind].sum() > 0:
                    unit = max(int(_unit(whole)), 1)
                    weights = (storage[shards, kind] // unit).tolist()
                    used = LinearExpr.weighted_sum(variables, weights)
                    self.model.add(used <= whole // unit)

    def hint(self, options: Ints, ranks: Ints) -> None:
        """Suggest a plan to the solver: the values of all variables."""
        space = self._candidates.space
        ends = np.cumsum(np.diff(space.first_shard)[options])
        plan = dict(zip(options.tolist(), np.split(ranks, ends[:-1]), strict=True))
        spent = np.zeros(self._candidates.devices.ranks, np.int64)
        for option, taken in self._taken.items():
            on = plan.get(option, np.empty(0, np.int64))
            np.add.at(spent, on, self._total[space.estimates_of(option)[: len(on)]])
            self.model.add_hint(taken, option in plan)
            for host, chosen in enumerate(self._hosts.get(option, [])):
                here = on[:1] // self._candidates.devices.host_ranks == host
                self.model.add_hint(chosen, bool(here.any()))
            for lot in self._lots[option]:
                of_parts = on[lot.first] if len(on) else on
                for place, variable in zip(lot.places[:, 0], lot.counts, strict=True):
                    self.model.add_hint(variable, int((of_parts == place).sum()))
        self.model.add_hint(self._slowest, int(spent.max()))

    def milliseconds(self, units: int) -> float:
        """Return the milliseconds of a bound, rounded down as a rating is at every addition."""
        shards = int(np.diff(self._candidates.space.first_shard)[self._candidates.options].sum())
        return units * self._unit * (1 - (shards + 8) * 2.0**-53)

    def plan(self, value: Any) -> Placed:
        """Return the plan of a solution; `value` maps a variable to its value."""
        first = self._candidates.space.first_shard
        options = [option for option, taken in self._taken.items() if value(taken)]
        on_ranks = []
        for option in options:
            ranks = np.empty(first[option + 1] - first[option], np.int64)
            for lot in self._lots[option]:
                times = [value(count) for count in lot.counts]
                of_parts = np.repeat(lot.places, times, axis=0)
                ranks[lot.first[:, None] + np.arange(of_parts.shape[1])] = of_parts
            on_ranks.append(ranks)
        return np.array(options, np.int64), np.concatenate(on_ranks)


def _unit(most: float) -> float:
    """Return the power of two of which `most` is less than 2**_BITS times."""
    return 2.0 ** (math.frexp(most)[1] - _BITS)
