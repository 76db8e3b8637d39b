"""Presolve: rules out options that no plan with at most a given rating can contain.

If all options of a table have a shard on every rank, every plan uses at least the smallest such
shard's memory and time on each rank. Each option of the other tables must fit alone in the rest:
for example, a host must have room for all shards of an option whose parts go together. Options
that do not fit are dropped. This may leave another table with only options on every rank, and so
on. Options are also dropped by their reduced cost in the linear programme.
"""

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np

from planners.embedding.best_plan.candidates import SAFETY, Bools, Candidates
from planners.embedding.best_plan.limits import rows_of_giants
from planners.embedding.best_plan.linear import LinearProgramme
from planners.embedding.best_plan.parts import ALL, HOST, parts_of
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Floats, Ints

# Above these numbers of uniform options, and of all options, times ranks, fitting takes too long.
_MOST_SHARDS, _MOST_PAIRS = 4_000_000, 50_000_000
_PER_BLOCK = 2_000_000  # most elements of a temporary array, to limit memory

_PRECISION = 2e-3  # relative precision of a bound, less than the gap that ends a search


class Presolve:
    """Rules out candidates that do not fit next to shards on every rank, or by reduced costs."""

    def __init__(self, candidates: Candidates) -> None:
        space, devices, options = candidates.space, candidates.devices, candidates.options
        self._candidates, self._table = candidates, space.table[options]
        parts = parts_of(space, devices)
        self._parts = np.diff(parts.first)[options]
        unit = parts.unit[parts.first[options]]
        self._everywhere, self._by_host = unit == ALL, unit == HOST
        self._together = parts.together[options] == 1
        uniform = options[self._everywhere]
        self._is_small = (
            len(uniform) * devices.ranks <= _MOST_SHARDS
            and len(options) * devices.ranks <= _MOST_PAIRS
        )
        if self._is_small:
            # Milliseconds and bytes: of each option's smallest shard, and of each rank's shard.
            figures = np.column_stack([space.total, space.storage])
            smallest = [figures[space.estimates_of(o)].min(axis=0) for o in options.tolist()]
            self._smallest = np.array(smallest).reshape(-1, 4)
            of_ranks = [figures[space.estimates_of(option)] for option in uniform.tolist()]
            self._of_ranks = np.array(of_ranks).reshape(-1, devices.ranks, 4)

    @cached_property
    def _programme(self) -> LinearProgramme:
        return LinearProgramme(self._candidates)

    def possible(self, limit: float, deadline: Deadline) -> Bools | None:
        """Return a mask of options that plans rating <= `limit` may have, or None if none rates so.

        Fitting and reduced costs rule out options alternately, until neither rules out any.
        """
        allowed = self.fitting(limit, self._candidates.largest <= limit)
        while self._has_plans(allowed):
            if deadline.passed:
                return allowed
            kept = self._programme.affordable(limit, allowed, deadline)
            if kept is not None and (kept == allowed).all():
                kept = self._beside_giants(limit, allowed, deadline)
            if kept is None or (kept == allowed).all():
                return kept
            allowed = self.fitting(limit, kept)
        return None

    def _beside_giants(self, limit: float, allowed: Bools, deadline: Deadline) -> Bools | None:
        """Return a mask of the allowed options that limits of giants leave, or None if no plan."""
        options = self._candidates.only(allowed)
        rows = rows_of_giants(options, limit)
        if rows is None:
            return allowed
        every = np.ones(len(options.options), bool)
        left = LinearProgramme(options, rows).affordable(limit, every, deadline)
        if left is None:
            return None
        kept = allowed.copy()
        kept[allowed] = left
        return kept

    def fitting(self, limit: float, allowed: Bools) -> Bools:
        """Return a mask of the allowed candidates that may fit in a plan that rates <= `limit`."""
        usable, storage = self._candidates.usable, self._candidates.devices.storage
        time = np.where(usable, limit * (1 + SAFETY), 0.0)
        room = np.column_stack([time, storage])
        while self._is_small and self._has_plans(allowed):
            kept = self._fitting(room, allowed)
            if (kept == allowed).all():
                break
            allowed = kept
        return allowed

    def _has_plans(self, allowed: Bools) -> bool:
        return not len(self._candidates.only(allowed).without_options)

    def _fitting(self, room: Floats, allowed: Bools) -> Bools:
        """Return a mask of allowed options that fit alone next to the shards on every rank."""
        # 1. What the tables with only options on every rank take at least, shape (T, ranks, 4).
        uniform = allowed[self._everywhere]
        rows, table = self._of_ranks[uniform], self._table[self._everywhere][uniform]
        taken = np.zeros((self._candidates.space.tables, *room.shape))
        if len(rows):
            starts = np.flatnonzero(np.diff(table, prepend=-1))
            taken[table[starts]] = np.minimum.reduceat(rows, starts, axis=0)
        taken[self._table[allowed & ~self._everywhere]] = 0.0
        # 2. What they leave to the others.
        left = room - taken.sum(axis=0)
        left[:, 0] += SAFETY * room[:, 0] if np.isfinite(room[0, 0]) else 0.0
        kept = allowed.copy()
        kept[allowed & self._everywhere] = (rows <= left + taken[table]).all(axis=(1, 2))
        others = np.flatnonzero(allowed & ~self._everywhere)
        for part in np.array_split(others, 1 + len(others) * room.size // _PER_BLOCK):
            kept[part] = self._fit_somewhere(part, np.maximum(left, 0.0))
        return kept

    def _fit_somewhere(self, options: Ints, left: Floats) -> Bools:
        """Return a mask of options that fit in `left`, counting each shard as the smallest one."""
        devices, needed = self._candidates.devices, self._parts[options]
        # 1. How many shards fit on each rank, and on the ranks of each host.
        smallest = self._smallest[options][:, None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            times = np.where(smallest > 0, left / smallest, np.inf).min(axis=2)
        times = np.floor(np.minimum(times, 1e6))  # shape (options, ranks)
        hosts = times[:, : devices.hosts * devices.host_ranks]
        hosts = hosts.reshape(len(options), devices.hosts, devices.host_ranks)
        # 2. How many parts fit: on whole hosts, evenly; on the ranks of one host; or on all ranks.
        evenly = -(-needed // max(devices.hosts, 1))
        by_host = np.minimum(hosts.min(axis=2), evenly[:, None]).sum(axis=1)
        together = hosts.sum(axis=2).max(axis=1, initial=0)
        fit = np.where(self._together[options], together, times.sum(axis=1))
        return np.asarray(np.where(self._by_host[options], by_host, fit) >= needed)


def presolved(candidates: Candidates) -> Candidates:
    """Return the candidates that may be part of some plan, whatever its rating."""
    if len(candidates.without_options):
        return candidates
    every = np.ones(len(candidates.options), bool)
    return candidates.only(Presolve(candidates).fitting(math.inf, every))


def presolve_bound(
    candidates: Candidates, at_least: float, at_most: float, deadline: Deadline
) -> tuple[float, Candidates]:
    """Return a lower bound on ratings, and the options of plans that rate at most `at_most`.

    `at_most` is the rating of a known plan, or infinity.
    """
    presolve = Presolve(candidates)
    allowed = presolve.possible(min(at_most, candidates.any_rating), deadline)
    if allowed is None:
        return at_most, candidates

    def impossible(limit: float) -> bool:
        return presolve.possible(limit, deadline) is None

    least = climb(impossible, at_least, at_most, deadline)
    return least, candidates.only(allowed)


def climb(
    impossible: Callable[[float], bool], low: float, at_most: float, deadline: Deadline
) -> float:
    """Return the highest rating proven impossible, at least `low` and below a plan's `at_most`.

    Try just below `at_most` first, then steps up from `low` that double, then bisect.
    """
    high, step = at_most / (1 + _PRECISION), 2 * _PRECISION
    limit = high if math.isfinite(high) else low * (1 + step)
    while 0 < low < high / (1 + _PRECISION) and not deadline.passed:
        if impossible(limit):
            low, step = limit, 2 * step
        else:
            high = limit
        limit = min(low * (1 + step), math.sqrt(low * high))
    return low
