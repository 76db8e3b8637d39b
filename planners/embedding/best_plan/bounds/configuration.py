"""The configuration programme: each device holds a pattern, a set of shards that it has room for.

A rating z is impossible where no mixture of patterns within z, one for each device, covers all
tables. A table may be covered by several options in parts; where that makes a rating possible, the
programme branches on the table: one option alone, or all but that one.

The proof is by duality: z is impossible where the tables are worth more than the most valuable
patterns of all devices are, whatever a table is taken to be worth. HiGHS says what to take, and a
compiled branch and bound has the last word, so no tolerance of a solver enters.
"""

import math
from dataclasses import dataclass
from functools import partial

import highspy
import numpy as np
import numpy.typing as npt

from planners.embedding.best_plan.bounds.climb import climb
from planners.embedding.best_plan.bounds.pieces import Pieces, first_worth
from planners.embedding.best_plan.bounds.presolve import Presolve
from planners.embedding.best_plan.bounds.pricing import dearest_pattern
from planners.embedding.best_plan.bounds.programmes import Solver
from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Floats, Ints

Bools = npt.NDArray[np.bool_]

_MOST_PIECES = 20_000  # of options, times devices' kinds; beyond it a pattern takes too long
_MOST_TABLES = 40  # with more, the linear bound is near, and patterns prove little in this time
_WORK = 40_000_000  # in nodes of the search for a pattern, some 20 million a second of CPU
_PART_OF_WORK = 0.5  # of what is left, for one rating
_ROUND = 5_000  # what a round of the programme takes beside that
_MOST_BRANCHES = 200
_SAFETY = 1e-8  # what a sum may be wrong by, as a part of it
_SMOOTHING = 0.7  # how near the best worth so far the next one is


def worth_patterns(found: Candidates) -> bool:
    """Whether the problem is small enough for patterns."""
    shards = np.diff(found.space.first_shard)[found.options].sum()
    return found.space.tables <= _MOST_TABLES and bool(shards <= _MOST_PIECES)


def pattern_bound(
    found: Candidates,
    at_least: float,
    at_most: float = math.inf,
    branches: int = _MOST_BRANCHES,
    work: int = _WORK,
    deadline: Deadline | None = None,
) -> tuple[float, Ints | None]:
    """Return a bound of `at_least` or more, and options that nothing was found against, or None.

    `at_most` is the rating of a known plan. The bound is infinite where it is proven that there is
    no plan. The effort is counted, and ends at a deadline before that.
    """
    deadline = deadline or Deadline()
    programme = ConfigurationProgramme(found, deadline, work)
    if math.isinf(at_most) and programme.impossible(found.any_rating, branches):
        return math.inf, None
    for most in (0, branches) if branches else (0,):
        impossible = partial(programme.impossible, branches=most)
        at_least = climb(impossible, at_least, at_most, deadline)
    return at_least, programme.unrefuted


@dataclass(frozen=True, slots=True)
class _Column:
    """A pattern of a kind of devices."""

    kind: int
    tables: Ints
    options: Ints
    shares: Floats


class ConfigurationProgramme:
    """Decides whether a rating is possible for devices that hold patterns; it keeps no state."""

    def __init__(self, found: Candidates, deadline: Deadline, work: int = _WORK) -> None:
        self._found, self._deadline = found, deadline
        self._work = work
        self._pieces = Pieces(found)
        self._presolve = Presolve(found)
        self._tables, self._table = found.space.tables, found.space.table
        capacity = np.maximum(found.devices.storage.sum(axis=0), 1)
        perf = found.space.option_perf / max(float(found.space.option_perf.max()), 1e-300)
        self._size = (found.space.option_storage / capacity).max(axis=1) + perf
        self._branches, self._enough = 0, 0.0
        self.unrefuted: Ints | None = None

    def impossible(self, limit: float, branches: int = 0) -> bool:
        """Whether it is proven that no plan rates `limit` or less, by so many branches at most."""
        allowed = np.zeros(len(self._table), bool)
        allowed[self._found.options] = True
        self._branches = branches
        self._enough = (1 - _PART_OF_WORK) * self._work
        if self._deadline.passed:  # looked at once a rating, which is little work
            return False
        return self._refuted(limit, allowed, [])

    def _refuted(self, limit: float, allowed: Bools, columns: list[_Column]) -> bool:
        options = self._found.options
        refuted, left = self._presolve.refuted(limit, self._deadline, allowed[options])
        if refuted:
            return True
        allowed = np.zeros_like(allowed)
        allowed[options[left]] = True
        columns = [column for column in columns if allowed[column.options].all()]
        refuted, parts = self._solve(limit, allowed, columns)
        if refuted:
            return True
        if self._branches <= 0 or self._spent:
            return False
        divided = np.where(parts < 1 - 1e-6, parts * (1 - parts), 0.0) * self._size
        score = np.bincount(self._table, divided, minlength=self._tables)
        table = int(score.argmax())
        if score[table] < 1e-9:
            self._note(parts)
            return False
        options = np.flatnonzero((self._table == table) & allowed)
        likeliest = options[parts[options].argmax()]
        alone, without = allowed.copy(), allowed.copy()
        alone[options] = False
        alone[likeliest] = True
        without[likeliest] = False
        for child in (alone, without):
            self._branches -= 1
            if not self._refuted(limit, child, columns):
                return False
        return True

    @property
    def _spent(self) -> bool:
        return self._work <= self._enough

    def _note(self, parts: Floats) -> None:
        """Keep the options of a leaf, where all tables have one."""
        chosen = np.full(self._tables, -1)
        taken = np.flatnonzero(parts > 0.5)
        chosen[self._table[taken]] = taken
        if (chosen >= 0).all():
            self.unrefuted = chosen

    def _solve(self, limit: float, allowed: Bools, columns: list[_Column]) -> tuple[bool, Floats]:
        """Return whether a rating is refuted, or else the parts of options; add to the columns."""
        counts = self._pieces.counts
        kinds = range(len(counts))
        items, options = zip(
            *(self._pieces.items(limit, kind, allowed) for kind in kinds), strict=True
        )
        parts = np.zeros(len(allowed))
        of_table = sum(np.diff(each.first) for each in items)
        if not np.all(of_table):
            return True, parts
        master = _Master(self._tables, counts)
        for column in columns:
            master.add(column)
        prices = [np.full(each.cost.shape[1], 1.0 / self._tables) for each in items]
        center = worth = first_worth(items)
        level = np.full(len(counts), 1.0 / counts.sum())  # of a device, where all are worth 1
        reached, best, smooth = 0.0, 0.0, True
        while not self._spent:
            self._work -= _ROUND
            if columns:
                reached, worth, level, parts = self._mixed(master, columns)
                if reached >= 1.0 - 1e-9:
                    break
            tried = _SMOOTHING * center + (1 - _SMOOTHING) * worth if smooth else worth
            improved = False
            # Above the first floor a pattern is what a proof has to exclude; above the second one
            # it is still of use to the mixture.
            for floor in (1 - 1e-7,) if smooth else (1 - 1e-7, reached):
                dearest = 0.0
                for kind, each in enumerate(items):
                    value, pattern, nodes = dearest_pattern(
                        each, tried, prices[kind], floor * float(level[kind])
                    )
                    self._work -= nodes
                    dearest += counts[kind] * value
                    if len(pattern):
                        column = _Column(
                            kind, each.table[pattern], options[kind][pattern], each.share[pattern]
                        )
                        gain = float(worth[column.tables] @ column.shares)
                        improved |= gain > level[kind] * reached * (1 + 1e-9)
                        columns.append(column)
                        master.add(column)
                if dearest * (1 + _SAFETY) < math.fsum(tried) * (1 - _SAFETY):
                    return True, parts
                if 1.0 / dearest > best:
                    best, center = 1.0 / dearest, tried
                if improved:
                    break
            if not improved and not smooth:
                break
            smooth = improved
        return False, parts

    def _mixed(
        self, master: "_Master", columns: list[_Column]
    ) -> tuple[float, Floats, Floats, Floats]:
        """Return what is covered, the worth of tables and of devices, and parts of options."""
        reached, worth, level, mix = master.solve()
        parts = np.zeros(len(self._table))
        for column, much in zip(columns, mix, strict=True):
            np.add.at(parts, column.options, much * column.shares)
        whole = np.bincount(self._table, parts, minlength=self._tables)[self._table]
        parts = np.divide(parts, whole, out=np.zeros(len(parts)), where=whole > 0)
        counts = self._pieces.counts
        everything = float(counts @ level)
        level = level / everything if everything > 0 else np.full(len(counts), 1 / counts.sum())
        total = worth.sum()
        worth = worth / total if total > 0 else np.full(self._tables, 1 / self._tables)
        return reached, worth, level, parts


class _Master:
    """The mixture of patterns that covers as much of every table as can be."""

    def __init__(self, tables: int, counts: Floats) -> None:
        self._tables = tables
        self._highs = highs = Solver()
        infinity = highspy.kHighsInf
        for _ in range(tables):
            highs.addRow(0.0, infinity, 0, [], [])
        for count in counts.tolist():
            highs.addRow(-infinity, count, 0, [], [])
        rows = np.arange(tables, dtype=np.int32)
        highs.addCol(-1.0, 0.0, 2.0, tables, rows, np.full(tables, -1.0))

    def add(self, column: _Column) -> None:
        """Add a pattern."""
        rows = np.append(column.tables, self._tables + column.kind).astype(np.int32)
        shares = np.append(column.shares, 1.0)
        self._highs.addCol(0.0, 0.0, highspy.kHighsInf, len(rows), rows, shares)

    def solve(self) -> tuple[float, Floats, Floats, Floats]:
        """Return which part of all tables is covered, the worth of each and of devices, the mix."""
        self._highs.run()
        solution = self._highs.getSolution()
        duals, values = np.array(solution.row_dual), np.array(solution.col_value)
        worth = np.maximum(duals[: self._tables], 0.0)
        return float(values[0]), worth, np.maximum(-duals[self._tables :], 0.0), values[1:]
