"""Presolve: rules out options that no plan with at most a given rating can contain.

If all options of a table have a shard on every rank, every plan uses at least the smallest such
shard's memory and time on each rank. Each option of the other tables must fit alone in the rest:
for example, a host must have room for all shards of an option whose parts go together. Options
that do not fit are dropped. This may leave another table with only options on every rank, and so
on. Options are also dropped by their reduced cost in the linear programme.
"""

import math
from collections.abc import Callable

import numpy as np

from planners.embedding.best_plan.candidates import Bools, Candidates
from planners.embedding.best_plan.linear import LinearProgramme
from planners.embedding.best_plan.parts import ALL, HOST, parts_of
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Floats, Ints

_MOST_SHARDS = 4_000_000  # uniform options times ranks; above, fitting would take too long
_SAFETY = 1 + 1e-9  # allows for rounding of sums
_PER_BLOCK = 2_000_000  # most elements of a temporary array, to limit memory

_PRECISION = 2e-3  # relative precision of a bound, less than the gap that ends a search
_FIRST_STEP = 5e-3  # first relative step of a bound; it doubles with each success


class Presolve:
    """Rules out candidates that do not fit next to shards on every rank, or by reduced costs."""

    def __init__(self, candidates: Candidates) -> None:
        space, devices = candidates.space, candidates.devices
        self._candidates = candidates
        self._table = space.table[candidates.options]
        parts = parts_of(space, devices)
        self._counts = np.diff(space.first_shard)[candidates.options]
        unit = parts.unit[parts.first[candidates.options]]
        self._everywhere = unit == ALL
        self._blocks = np.where(unit == HOST, np.diff(parts.first)[candidates.options], 0)
        self._together = parts.together[candidates.options] == 1
        self._uniform = np.flatnonzero(self._everywhere)
        self._worth_fitting = len(self._uniform) * devices.ranks <= _MOST_SHARDS
        if self._worth_fitting:
            figures = np.column_stack([space.total, space.storage.astype(np.float64)])
            shards = [space.estimates_of(option) for option in candidates.options.tolist()]
            smallest = [figures[estimates].min(axis=0) for estimates in shards]
            self._least = np.array(smallest).reshape(-1, 4)
            on_ranks = [figures[shards[option]] for option in self._uniform.tolist()]
            self._on_ranks = np.array(on_ranks).reshape(-1, devices.ranks, 4)
        self._programme: LinearProgramme | None = None

    def possible(self, limit: float, allowed: Bools | None = None) -> Bools:
        """Return a mask of the allowed candidates that may fit in a plan that rates <= `limit`."""
        candidates = self._candidates
        within = candidates.largest <= limit
        allowed = within if allowed is None else allowed & within
        if not self._worth_fitting:
            return allowed
        time = np.where(candidates.usable, limit * _SAFETY, 0.0)
        room = np.column_stack([time, candidates.devices.storage.astype(np.float64)])
        while self._all_have_options(allowed):
            kept = self._fitting(room, allowed)
            if (kept == allowed).all():
                break
            allowed = kept
        return allowed

    def _all_have_options(self, allowed: Bools) -> bool:
        return bool(np.logical_or.reduceat(allowed, self._candidates.first[:-1]).all())

    def _fitting(self, room: Floats, allowed: Bools) -> Bools:
        """Return a mask of allowed options that fit alone next to the shards on every rank."""
        tables = self._candidates.space.tables
        choice = np.bincount(self._table[allowed], minlength=tables)
        uniform = self._uniform[allowed[self._uniform]]
        rows = self._on_ranks[allowed[self._uniform]]
        whole = np.bincount(self._table[uniform], minlength=tables) == choice
        taken = np.zeros((tables, *room.shape))
        forced = whole[self._table[uniform]]
        if forced.any():
            table = self._table[uniform[forced]]
            starts = np.flatnonzero(np.diff(table, prepend=-1))
            taken[table[starts]] = np.minimum.reduceat(rows[forced], starts, axis=0)
        left = room - taken.sum(axis=0)
        left[:, 0] += 1e-9 * room[:, 0] if np.isfinite(room[0, 0]) else 0.0
        kept = allowed.copy()
        kept[uniform] = (rows <= left + taken[self._table[uniform]]).all(axis=(1, 2))
        others = np.flatnonzero(allowed & ~self._everywhere)
        for part in np.array_split(others, 1 + len(others) * len(left) * 4 // _PER_BLOCK):
            kept[part] = self._fit_somewhere(part, np.maximum(left, 0.0))
        return kept

    def _fit_somewhere(self, options: Ints, left: Floats) -> Bools:
        """Return a mask of options that fit in `left`, counting each shard as the smallest one."""
        devices = self._candidates.devices
        least = self._least[options][:, None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            times = np.where(least > 0, left[None] / least, np.inf).min(axis=2)
        times = np.floor(np.minimum(times, 1e6))  # shape (options, ranks)
        fits = times.sum(axis=1) >= self._counts[options]
        if self._candidates.devices.hosts:
            hosts = times[:, : devices.hosts * devices.host_ranks]
            hosts = hosts.reshape(len(options), devices.hosts, devices.host_ranks)
            parts = self._blocks[options]
            blocks = np.minimum(hosts.min(axis=2), -(-parts[:, None] // devices.hosts))
            fits &= (parts == 0) | (blocks.sum(axis=1) >= parts)
            together = hosts.sum(axis=2).max(axis=1) >= self._counts[options]
            fits &= ~self._together[options] | together
        return np.asarray(fits)

    def refuted(self, limit: float, deadline: Deadline) -> tuple[bool, Bools]:
        """Return whether it is proven that no plan rates <= `limit`, and a mask of options left.

        Fitting and reduced costs rule out options alternately, until neither rules out any.
        """
        if self._programme is None:
            self._programme = LinearProgramme(self._candidates)
        allowed = self.possible(limit)
        while self._all_have_options(allowed):
            if deadline.passed:
                return False, allowed
            kept = self._programme.affordable(limit, allowed, deadline)
            if kept is None:
                return True, allowed
            if (kept == allowed).all():
                return False, allowed
            allowed = self.possible(limit, kept)
        return True, allowed


def presolved(candidates: Candidates) -> Candidates:
    """Return the candidates that may be part of some plan, whatever its rating."""
    if len(candidates.without_options):
        return candidates
    return candidates.only(Presolve(candidates).possible(math.inf))


def presolve_bound(
    candidates: Candidates, at_least: float, at_most: float, deadline: Deadline
) -> tuple[float, Candidates]:
    """Return a lower bound on ratings, and the options of plans that rate at most `at_most`.

    `at_most` is the rating of a known plan, or infinity.
    """
    presolve = Presolve(candidates)
    refuted, allowed = presolve.refuted(at_most, deadline)
    if refuted:
        return at_most, candidates

    def impossible(limit: float) -> bool:
        return presolve.refuted(limit, deadline)[0]

    least = climb(impossible, at_least, at_most, deadline)
    return least, candidates.only(allowed)


def climb(
    impossible: Callable[[float], bool], low: float, at_most: float, deadline: Deadline
) -> float:
    """Return the highest rating proven impossible, at least `low` and below a plan's `at_most`.

    Try just below `at_most` first, then growing steps up from `low`, then bisect.
    """
    high, step = at_most / (1 + _PRECISION), _FIRST_STEP
    try_high = math.isfinite(high)
    while 0 < low < high / (1 + _PRECISION) and not deadline.passed:
        limit = high if try_high else min(low * (1 + step), math.sqrt(low * high))
        try_high = False
        if impossible(limit):
            low, step = limit, 2 * step
        else:
            high = limit
    return low
