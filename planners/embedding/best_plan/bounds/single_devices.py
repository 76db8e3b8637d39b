"""The integer programme by host, with cutting planes for the capacity of single devices.

If only the sums of a host's memory and time are limited, a large shard can lie across devices. Two
types of rows forbid this. First, a shard must fit on a device next to the shards that are on every
device of the host. Second, a giant (a shard that needs more than half of a device in one kind, time
or memory) leaves little of that kind to other shards. These rows use conservative scales (dual
feasible functions; Fekete and Schepers 2001): weights of shards that sum to at most 1 on any
device, and so to at most the number of devices on a host.
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
    Part,
    run_solver,
)
from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Floats, Ints

_TRIES = 4  # ratings tried with the linear relaxation: each try halves the gap, in logarithms
_MOST_NODES = 400  # four times as many as without these rows, because they prove more per node
_LEAST_PART = 0.15  # smaller shards, as parts of a device, hardly ever violate their rows
_FACTORS, _LEAST_FACTOR = 12, 0.3  # conservative scales per pair of kinds, and their least factor
_GIANT = 0.5 + 1e-9  # part of a device; at most one such shard fits on it
_SLACK = 1e-6  # added to each row's limit for the solver's tolerances


def single_device_bound(
    found: Candidates, at_least: float, at_most: float, deadline: Deadline
) -> LowerBound:
    """Return a lower bound between `at_least`, a known bound, and `at_most`, a known plan's rating.

    Its options, unless they are -1, fit in the memory of each host. The work is limited by counts
    and by the deadline.
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
        tried = programme(middle)
        if tried is None or tried.refuted(deadline):
            least = middle
        else:
            high = middle
    last = programme(at_most)
    if last is None or last.refuted(deadline):
        return LowerBound(at_most, none)
    whole = last.least(deadline)
    return replace(whole, milliseconds=max(least, min(whole.milliseconds, at_most)))


@dataclass(frozen=True, slots=True)
class _Row:
    """A cutting plane: the sum of `factors` times the values of `columns` is at most `limit`."""

    columns: Ints
    factors: Floats
    limit: float

    def broken(self, values: Floats) -> bool:
        """Whether a solution, the values of all columns, violates the row."""
        return bool(self.factors @ values[self.columns] > self.limit + _SLACK)


class DeviceProgramme(HostProgramme):
    """The integer programme for plans that rate `limit` or less; it adds violated rows."""

    def __init__(self, found: Candidates, limit: float) -> None:
        super().__init__(found, limit)
        self._highs.changeColBounds(0, 0.0, 1.0 + INTEGER_SAFETY)
        self._highs.setOptionValue("mip_max_nodes", _MOST_NODES)
        self._highs.setOptionValue("mip_heuristic_effort", 0.0)  # a plan is known
        self._left = [
            row for host, parts in enumerate(self._parts) for row in self._rows(host, parts)
        ]

    def refuted(self, deadline: Deadline) -> bool:
        """Whether the linear relaxation proves that no plan rates <= `limit`; add violated rows."""
        highs = self._highs
        highs.setOptionValue("solve_relaxation", True)
        run_solver(highs, deadline)
        while highs.getModelStatus() == highspy.HighsModelStatus.kOptimal and self._add_rows():
            run_solver(highs, deadline)
        highs.setOptionValue("solve_relaxation", False)
        return bool(highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible)

    def least(self, deadline: Deadline) -> LowerBound:
        """Return a lower bound on plans that rate `limit` or less; infinite if none exists.

        If the solution violates more rows, add them and solve again.
        """
        least, options = self.solve(deadline)
        if (options >= 0).all() and self._add_rows():
            again, others = self.solve(deadline)
            least = max(least, again)
            options = others if (others >= 0).all() else options
        return LowerBound(least, options)

    def _add_rows(self) -> bool:
        """Add the rows that the last solution violates; return whether there are any."""
        values = np.array(self._highs.getSolution().col_value)
        broken = [row.broken(values) for row in self._left]
        for row in compress(self._left, broken):
            columns, limit = row.columns.astype(np.int32), row.limit + _SLACK
            self._highs.addRow(-highspy.kHighsInf, limit, len(columns), columns, row.factors)
        self._left = [row for row, added in zip(self._left, broken, strict=True) if not added]
        return any(broken)

    def _rows(self, host: int, parts: list[Part]) -> Iterator[_Row]:
        """Yield the cutting planes of a host; they are valid for all plans."""
        if not parts:
            return
        start, end = self._hosts[host]
        capacity = np.maximum(self._devices.storage[start:end].max(axis=0), 1)[self._kinds]
        needs = np.column_stack(
            [self._space.total / self._unit, self._space.storage[:, self._kinds] / capacity]
        )
        yield from _replicated_rows(needs, parts)
        columns = np.array([part.column for part in parts])
        shards = np.concatenate([part.shards for part in parts])
        first = np.cumsum([0, *(len(part.shards) for part in parts)])[:-1]
        for weights in _cut_weights(needs, np.unique(shards)):
            factors = np.add.reduceat(weights[shards], first)
            some = np.flatnonzero(factors)
            yield _Row(columns[some], factors[some], float(end - start))


def _replicated_rows(needs: Floats, parts: list[Part]) -> Iterator[_Row]:
    """Yield rows: a table's shard fits on a device next to the shards that are on every device.

    There is one row per kind. A plan uses one option per table, so a table's options share a row;
    different shards of an option have different rows.
    """
    even = [part for part in parts if part.everywhere]
    replicated = np.array([needs[part.shards].min(axis=0) for part in even])
    replicated = replicated.reshape(len(even), needs.shape[1])
    groups: dict[tuple[int, int], list[Part]] = {}
    for part in parts:
        if not part.everywhere:
            groups.setdefault((part.table, part.number), []).append(part)
    for group in groups.values():
        own = np.array([needs[part.shards].max(axis=0) / part.most for part in group])
        columns = np.array([0, *(part.column for part in (*even, *group))])
        for kind in np.flatnonzero(own.max(axis=0) >= _LEAST_PART).tolist():
            # Column 0 is z: time is limited by it, memory by the device.
            slowest, limit = (-1.0, 0.0) if kind == 0 else (0.0, 1.0)
            factors = np.concatenate([[slowest], replicated[:, kind], own[:, kind]])
            used = np.flatnonzero(factors)
            yield _Row(columns[used], factors[used], limit)


def _cut_weights(needs: Floats, shards: Ints) -> Iterator[Floats]:
    """Yield weights of shards, one array per scale; the weights on any device sum to at most 1.

    Take a kind of need (time or memory) that giants make scarce, another kind, and a factor f. The
    weight of a shard is its need of the other kind, but at most f times its need of the scarce one.
    If a giant leaves r of the scarce kind, the shards next to it weigh at most f r together, so the
    giant may weigh 1 - f r.
    """
    for scarce, other in permutations(range(needs.shape[1]), 2):
        giants = needs[shards, scarce] > _GIANT
        if not giants.any():
            continue
        least_left = max(1.0 - needs[shards[giants], scarce].max(), 1e-3)
        for factor in np.geomspace(_LEAST_FACTOR, 1.0 / least_left, _FACTORS).tolist():
            weights = np.minimum(needs[:, other], factor * needs[:, scarce])
            rest = 1.0 - factor * (1.0 - needs[:, scarce])
            giant = np.maximum(needs[:, other], rest)
            yield np.where(needs[:, scarce] > _GIANT, giant, weights)
