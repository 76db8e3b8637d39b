"""The integer programme by host, with rows for what a single device of a host can hold.

A host's memory and time in sum let a large shard lie across devices. Two kinds of rows say that it
cannot. Shards that lie on every device of a host leave the rest of one to any other shard. And
beside a giant, a shard of more than half of a device in one kind of memory or in time, little of
that is left, and so little else that needs it: for any factor f the others together have at most f
times what is left, as each counts no more than f times what it takes of it. So the giant can count
as much as the rest of the device.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import compress, permutations

import highspy
import numpy as np

from planners.embedding.best_plan.bounds.bound import LowerBound
from planners.embedding.best_plan.bounds.presolve import Presolve
from planners.embedding.best_plan.bounds.programmes import (
    INTEGER_SAFETY,
    HostProgramme,
    run_solver,
)
from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Floats, Ints, Placement

_TRIES = 4  # of ratings that the linear relaxation is asked about
_MOST_NODES = 400
_LEAST_PART = 0.15  # of a device, of a shard that has a row of its own
_FACTORS = 12
_LEAST_FACTOR = 0.3
_GIANT = 0.5 + 1e-9
_SLACK = 1e-6  # of a row, for the solver's tolerances


def single_device_bound(
    found: Candidates, at_least: float, at_most: float, deadline: Deadline
) -> LowerBound:
    """Return a bound of `at_least` or more; `at_most` is the rating of a known plan.

    Its options, where it has some, are whole, and each host has room for its own. The effort is
    counted, and ends at a deadline before that.
    """
    presolve = Presolve(found)

    def programme(limit: float) -> DeviceProgramme | None:
        refuted, allowed = presolve.refuted(limit, deadline)
        return None if refuted else DeviceProgramme(found.only(allowed), limit)

    none = np.full(found.space.tables, -1)
    least, high = at_least, at_most
    for _ in range(_TRIES):
        middle = math.sqrt(least * high)
        if not least < middle < high or deadline.passed:
            return LowerBound(least, none)
        each = programme(middle)
        if each is None or each.refuted(deadline):
            least = middle
        else:
            high = middle
    last = programme(at_most)
    if last is None or last.refuted(deadline):
        return LowerBound(at_most, none)
    whole = last.least(deadline)
    return replace(whole, milliseconds=max(least, min(whole.milliseconds, at_most)))


@dataclass(frozen=True, slots=True)
class _Part:
    """Shards that a host may have: as many lots of them as a column of the programme says."""

    column: int
    most: int
    table: int
    number: int  # among those of its option
    shards: Ints
    everywhere: bool  # one on each device; otherwise each on any


@dataclass(frozen=True, slots=True)
class _Row:
    """The sum of these columns, each with its factor, is at most a limit."""

    columns: Ints
    factors: Floats
    limit: float

    def broken(self, values: Floats) -> bool:
        """Whether a solution breaks it."""
        return bool(self.factors @ values[self.columns] > self.limit + _SLACK)


class DeviceProgramme(HostProgramme):
    """The integer programme for plans that rate `limit` or less; rows are added as needed."""

    def __init__(self, found: Candidates, limit: float) -> None:
        super().__init__(found, found.options, limit)
        self._highs.changeColBounds(0, 0.0, 1.0 + INTEGER_SAFETY)
        self._highs.setOptionValue("mip_max_nodes", _MOST_NODES)
        self._highs.setOptionValue("mip_heuristic_effort", 0.0)  # a plan is known
        hosts = range(len(self._hosts))
        self._left = [row for host in hosts for row in self._rows(host, self._parts(host))]

    def refuted(self, deadline: Deadline) -> bool:
        """Whether options in parts prove that no plan rates `limit` or less; adds rows for it."""
        highs = self._highs
        highs.setOptionValue("solve_relaxation", True)
        run_solver(highs, deadline)
        while highs.getModelStatus() == highspy.HighsModelStatus.kOptimal and self._add_rows():
            run_solver(highs, deadline)
        highs.setOptionValue("solve_relaxation", False)
        return bool(highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible)

    def least(self, deadline: Deadline) -> LowerBound:
        """Return milliseconds that no plan of `limit` or less rates below; infinite without one.

        Whole options break other rows than those in parts, so it is solved again with these.
        """
        least, options = self.solve(deadline)
        if (options >= 0).all() and self._add_rows():
            again, others = self.solve(deadline)
            least = max(least, again)
            options = others if (others >= 0).all() else options
        return LowerBound(least, options)

    def _add_rows(self) -> bool:
        """Add the rows that the last solution breaks; returns whether there are any."""
        values = np.array(self._highs.getSolution().col_value)
        broken = [row.broken(values) for row in self._left]
        for row in compress(self._left, broken):
            columns, limit = row.columns.astype(np.int32), row.limit + _SLACK
            self._highs.addRow(-highspy.kHighsInf, limit, len(columns), columns, row.factors)
        self._left = [row for row, added in zip(self._left, broken, strict=True) if not added]
        return any(broken)

    def _parts(self, host: int) -> list[_Part]:
        """Return what a host may have of all options."""
        space, (start, end) = self._space, self._hosts[host]
        even = (Placement.HOST_ROWS, Placement.HOSTS)
        parts = []
        for option, column in self._column_of.items():
            table, placement = int(space.table[option]), space.placement[option]
            if placement == Placement.UNIFORM:
                shards = space.estimates_of(option)[start:end]
                parts.append(_Part(column, 1, table, 0, shards, True))
            for number, lots in enumerate(self._lots[column]):
                if host in lots.columns:
                    on = lots.columns[host]
                    on_each = placement in even
                    parts.append(_Part(on, lots.most, table, number, lots.shards, on_each))
        return parts

    def _rows(self, host: int, parts: list[_Part]) -> Iterator[_Row]:
        """Yield what holds for each device of a host, and for their sum."""
        if not parts:
            return
        start, end = self._hosts[host]
        capacity = np.maximum(self._devices.storage[start:end].max(axis=0), 1)[self._kinds]
        needs = np.column_stack(
            [self._space.total / self._unit, self._space.storage[:, self._kinds] / capacity]
        )
        yield from _beside_what_is_everywhere(needs, parts)
        columns = np.array([part.column for part in parts])
        shards = np.concatenate([part.shards for part in parts])
        first = np.cumsum([0, *(len(part.shards) for part in parts)])[:-1]
        for counted in _counted_beside_giants(needs, np.unique(shards)):
            factors = np.add.reduceat(counted[shards], first)
            some = np.flatnonzero(factors)
            yield _Row(columns[some], factors[some], float(end - start))


def _beside_what_is_everywhere(needs: Floats, parts: list[_Part]) -> Iterator[_Row]:
    """Yield that a table's shard fits beside what is on every device, in each kind and in time.

    Of a table one option is taken, so those of all its options share a row, but for shards of one
    option that differ.
    """
    even = [part for part in parts if part.everywhere]
    shared = [needs[part.shards].min(axis=0) for part in even]
    shared_by_kind = np.array(shared).reshape(len(even), needs.shape[1])
    rows: dict[tuple[int, int], list[_Part]] = {}
    for part in parts:
        if not part.everywhere:
            rows.setdefault((part.table, part.number), []).append(part)
    for some in rows.values():
        own = np.array([needs[part.shards].max(axis=0) / part.most for part in some])
        columns = np.array([0, *(part.column for part in (*even, *some))])
        for kind in np.flatnonzero(own.max(axis=0) >= _LEAST_PART).tolist():
            slowest, limit = (-1.0, 0.0) if kind == 0 else (0.0, 1.0)
            factors = np.concatenate([[slowest], shared_by_kind[:, kind], own[:, kind]])
            used = np.flatnonzero(factors)
            yield _Row(columns[used], factors[used], limit)


def _counted_beside_giants(needs: Floats, shards: Ints) -> Iterator[Floats]:
    """Yield what shards count, so that those of any one device count 1 at most."""
    for scarce, other in permutations(range(needs.shape[1]), 2):
        giants = needs[shards, scarce] > _GIANT
        if not giants.any():
            continue
        least_left = max(1.0 - needs[shards[giants], scarce].max(), 1e-3)
        for factor in np.geomspace(_LEAST_FACTOR, 1.0 / least_left, _FACTORS).tolist():
            counted = np.minimum(needs[:, other], factor * needs[:, scarce])
            rest = 1.0 - factor * (1.0 - needs[:, scarce])
            giant = np.maximum(needs[:, other], rest)
            yield np.where(needs[:, scarce] > _GIANT, giant, counted)
