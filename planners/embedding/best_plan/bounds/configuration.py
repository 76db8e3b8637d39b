"""The bound by patterns: the configuration programme, solved by column generation.

A pattern is a set of shards that fits on a device, in its memory and in time z (Gilmore and Gomory
1961, for cutting stock). A rating z is impossible if no mixture of patterns, one per device, covers
all tables. A mixture may cover a table by fractions of several options. If z is possible only in
this way, the programme branches on the table: one option alone, or all others (branch and price).

The proof is by LP duality: z is impossible if, for some values of the tables, the sum of all values
exceeds the summed value of the most valuable pattern of each device. HiGHS solves the master
programme, which proposes values. The compiled search for patterns (pricing) then decides, so the
solver's tolerances cannot make the proof wrong.
"""

import math
from dataclasses import dataclass
from functools import partial

import highspy
import numpy as np
import numpy.typing as npt

from planners.embedding.best_plan.bounds.patterns import Items, most_valuable_pattern
from planners.embedding.best_plan.bounds.presolve import Presolve, climb
from planners.embedding.best_plan.bounds.programmes import Solver
from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Floats, Ints, Placement

Bools = npt.NDArray[np.bool_]

_WORK = 40_000_000  # nodes of the search for patterns, about 20 million per second of CPU
_PART_OF_WORK = 0.5  # part of the remaining work to use for one rating
_ROUND = 5_000  # the work of a round of the master programme, in nodes
_MOST_BRANCHES = 200
_SAFETY = 1e-8  # more than the relative rounding error of a sum
# The master's values oscillate, so they are averaged with the best values so far (Wentges 1997).
_SMOOTHING = 0.7


def pattern_bound(
    found: Candidates,
    at_least: float,
    at_most: float = math.inf,
    branches: int = _MOST_BRANCHES,
    work: int = _WORK,
) -> float:
    """Return a bound of at least `at_least`, a known bound; infinite if it proves there is no plan.

    `at_most` is the rating of a known plan. `work` limits the nodes; no clock is used.
    """
    programme = ConfigurationProgramme(found, work)
    if math.isinf(at_most) and programme.impossible(found.any_rating, branches):
        return math.inf
    for most in (0, branches) if branches else (0,):
        impossible = partial(programme.impossible, branches=most)
        at_least = climb(impossible, at_least, at_most, Deadline())
    return at_least


@dataclass(frozen=True, slots=True)
class _Piece:
    """One shard of an option; a pattern can contain up to `most` copies of the shard."""

    option: int
    table: int
    estimate: Floats  # milliseconds, then bytes by kind
    share: float  # the fraction of the table that one copy covers
    most: int


class Pieces:
    """The pieces of all candidates, and the kinds of devices (devices with equal memory)."""

    def __init__(self, found: Candidates) -> None:
        space = found.space
        self._tables = space.tables
        self._kinds = [kind for kind in range(3) if space.storage[:, kind].any()]
        capacity = found.devices.storage[found.usable][:, self._kinds]
        self._capacity, counts = np.unique(capacity, axis=0, return_counts=True)
        self.counts: Floats = counts.astype(np.float64)  # devices of each kind
        pieces = [piece for option in found.options.tolist() for piece in self._of(found, option)]
        pieces.sort(key=lambda piece: piece.table)
        self._table = np.array([piece.table for piece in pieces], np.int64)
        self._option = np.array([piece.option for piece in pieces], np.int64)
        self._estimate = np.array([piece.estimate for piece in pieces], np.float64)
        self._share = np.array([piece.share for piece in pieces])
        self._most = np.array([piece.most for piece in pieces], np.int64)

    def _of(self, found: Candidates, option: int) -> list[_Piece]:
        space, devices = found.space, found.devices
        shards, placement = space.estimates_of(option), space.placement[option]
        table = int(space.table[option])
        figures = np.column_stack([space.total[shards], space.storage[shards][:, self._kinds]])
        if placement in (Placement.UNIFORM, Placement.HOST_ROWS):
            # One shard per device; a more expensive shard counts as a larger share of the table.
            weight = figures[:, 0] if figures[:, 0].any() else figures.sum(axis=1)
            weight = weight if weight.any() else np.ones(len(shards))
            rows = np.unique(np.column_stack([weight / weight.sum(), figures]), axis=0)
            rows = rows[rows[:, 0] > 0]
            return [_Piece(option, table, row[1:], float(row[0]), 1) for row in rows]
        # Ignore shards that need nothing; count each other shard as the smallest of these.
        taking = figures[figures.any(axis=1)]
        if not len(taking):
            return [_Piece(option, table, figures[0], 1.0, 1)]
        most = len(taking)
        if placement == Placement.HOSTS:
            most = -(-len(shards) // (devices.host_ranks * devices.hosts))
        return [_Piece(option, table, taking.min(axis=0), 1 / len(taking), most)]

    def items(self, limit: float, kind: int, allowed: npt.NDArray[np.bool_]) -> tuple[Items, Ints]:
        """Return the items of a kind of device within a time limit, and the option of each item.

        An item is 1 to `most` copies of a piece.
        """
        whole = np.concatenate([[limit or 1e-300], np.maximum(self._capacity[kind], 1)])
        cost = self._estimate / whole
        largest = cost.max(axis=1)
        room = np.full(len(cost), np.inf)
        np.divide(1.0 + 1e-9, largest, out=room, where=largest > 0)
        most = np.minimum(self._most, np.minimum(room, 1e6).astype(np.int64))
        most[~allowed[self._option]] = 0
        piece = np.repeat(np.arange(len(most)), most)
        times = np.arange(len(piece)) - np.repeat(np.cumsum(most) - most, most) + 1
        first = np.searchsorted(self._table[piece], np.arange(self._tables + 1))
        items = Items(
            self._table[piece], first, self._share[piece] * times, cost[piece] * times[:, None]
        )
        return items, self._option[piece]


@dataclass(frozen=True, slots=True)
class _Column:
    """A pattern for one kind of device, as a column of the master programme."""

    kind: int
    tables: Ints
    options: Ints
    shares: Floats


class ConfigurationProgramme:
    """Proves by patterns that ratings are impossible; `work` limits the nodes of the searches."""

    def __init__(self, found: Candidates, work: int) -> None:
        self._found, self._work = found, work
        self._pieces = Pieces(found)
        self._presolve = Presolve(found)
        self._tables, self._table = found.space.tables, found.space.table
        capacity = np.maximum(found.devices.storage.sum(axis=0), 1)
        perf = found.space.option_perf / max(float(found.space.option_perf.max()), 1e-300)
        self._size = (found.space.option_storage / capacity).max(axis=1) + perf
        self._branches, self._enough = 0, 0.0

    def impossible(self, limit: float, branches: int = 0) -> bool:
        """Whether at most `branches` branches prove that no plan rates `limit` or less."""
        allowed = np.zeros(len(self._table), bool)
        allowed[self._found.options] = True
        self._branches = branches
        self._enough = (1 - _PART_OF_WORK) * self._work
        return self._refuted(limit, allowed, [])

    def _refuted(self, limit: float, allowed: Bools, columns: list[_Column]) -> bool:
        options = self._found.options
        refuted, left = self._presolve.refuted(limit, Deadline(), allowed[options])
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
        if score[table] < 1e-9:  # no table has fractions of options
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

    def _solve(self, limit: float, allowed: Bools, columns: list[_Column]) -> tuple[bool, Floats]:
        """Return whether a rating is refuted, and the fraction of each option; extend `columns`.

        Column generation: the master programme's duals are values of tables, for which pricing
        finds better patterns. `total` is the summed value of all devices' best patterns. By duality
        no mixture covers more of every table than `total` divided by the sum of the tables' values.
        If this is below 1, the rating is refuted.
        """
        counts = self._pieces.counts
        kinds = range(len(counts))
        items, options = zip(
            *(self._pieces.items(limit, kind, allowed) for kind in kinds), strict=True
        )
        parts = np.zeros(len(allowed))
        if not np.all(sum(np.diff(of_kind.first) for of_kind in items)):
            return True, parts  # some table fits on no device
        master = _Master(self._tables, counts)
        for column in columns:
            master.add(column)
        prices = [np.full(of_kind.cost.shape[1], 1.0 / self._tables) for of_kind in items]
        center = worth = np.full(self._tables, 1 / self._tables)
        level = np.full(len(counts), 1.0 / counts.sum())  # value per device, 1 for all devices
        reached, best, smooth = 0.0, 0.0, True
        while not self._spent:
            self._work -= _ROUND
            if columns:
                reached, worth, level, parts = self._mixed(master, columns)
                if reached >= 1.0 - 1e-9:
                    break
            tried = _SMOOTHING * center + (1 - _SMOOTHING) * worth if smooth else worth
            improved = False
            # A proof must exclude patterns above the first floor. Patterns above the second floor
            # still improve the mixture.
            for floor in (1 - 1e-7,) if smooth else (1 - 1e-7, reached):
                total = 0.0
                for kind, of_kind in enumerate(items):
                    value, pattern, nodes = most_valuable_pattern(
                        of_kind, tried, prices[kind], floor * float(level[kind])
                    )
                    self._work -= nodes
                    total += counts[kind] * value
                    if len(pattern):
                        column = _Column(
                            kind,
                            of_kind.table[pattern],
                            options[kind][pattern],
                            of_kind.share[pattern],
                        )
                        gain = float(worth[column.tables] @ column.shares)
                        improved |= gain > level[kind] * reached * (1 + 1e-9)
                        columns.append(column)
                        master.add(column)
                if total * (1 + _SAFETY) < math.fsum(tried) * (1 - _SAFETY):
                    return True, parts
                if 1.0 / total > best:
                    best, center = 1.0 / total, tried
                if improved:
                    break
            if not improved and not smooth:
                break
            smooth = improved
        return False, parts

    def _mixed(
        self, master: "_Master", columns: list[_Column]
    ) -> tuple[float, Floats, Floats, Floats]:
        """Return the covered part, the values of tables and device kinds, and option fractions."""
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
    """The master programme: maximises the least covered part of any table over all mixtures."""

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
        """Add a pattern as a column."""
        rows = np.append(column.tables, self._tables + column.kind).astype(np.int32)
        shares = np.append(column.shares, 1.0)
        self._highs.addCol(0.0, 0.0, highspy.kHighsInf, len(rows), rows, shares)

    def solve(self) -> tuple[float, Floats, Floats, Floats]:
        """Return the least covered part, the duals of tables and device kinds, and the mixture."""
        self._highs.run()
        solution = self._highs.getSolution()
        duals, values = np.array(solution.row_dual), np.array(solution.col_value)
        worth = np.maximum(duals[: self._tables], 0.0)
        return float(values[0]), worth, np.maximum(-duals[self._tables :], 0.0), values[1:]
