"""The bound by patterns: the configuration programme, solved by column generation.

A pattern is a set of shards that fits on a device, in its memory and in time z (Gilmore and Gomory
1961, for cutting stock). A rating z is impossible if no mixture of patterns, one per device, covers
all tables. A mixture may cover a table by fractions of several options.

The proof is by LP duality: z is impossible if, for some values of the tables, the sum of all values
exceeds the summed value of the most valuable pattern of each device. HiGHS solves the master
programme, which proposes values. The compiled search for patterns (pricing) then decides, so the
solver's tolerances cannot make the proof wrong.
"""

import math

import highspy
import numpy as np

from planners.embedding.best_plan.candidates import SAFETY, Bools, Candidates
from planners.embedding.best_plan.parts import HOST, RANK, parts_of
from planners.embedding.best_plan.presolve import Presolve, climb
from planners.embedding.best_plan.pricing import Items, most_valuable_pattern
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Floats, Ints
from planners.highs import Solver, is_solved

# Larger problems: with more shards, a pattern takes too long to find; with more tables, the linear
# bound is close to the best rating anyway.
_MOST_TABLES, _MOST_SHARDS = 40, 20_000

_WORK = 8_000_000
"""The work of a bound, in nodes of the search for patterns: about 0.4 s of CPU."""


def worth_patterns(candidates: Candidates) -> bool:
    """Whether a problem is small enough for the bound by patterns."""
    shards = int(np.diff(candidates.space.first_shard)[candidates.options].sum())
    return candidates.space.tables <= _MOST_TABLES and shards <= _MOST_SHARDS


def pattern_bound(
    candidates: Candidates, at_least: float, at_most: float, deadline: Deadline
) -> float:
    """Return a bound of at least `at_least`, a known bound; infinite if it proves there is no plan.

    `at_most` is the rating of a known plan, or infinity. The work is a number of nodes; the
    deadline's seconds limit that number, so no clock is read.
    """
    work = _WORK
    if deadline.seconds is not None:
        # The nodes of a tenth of the time limit.
        work = min(work, int(_WORK * deadline.seconds / 4) + 1)
    programme = _ConfigurationProgramme(candidates, work)
    if math.isinf(at_most) and programme.impossible(candidates.any_rating):
        return math.inf
    return climb(programme.impossible, at_least, at_most, Deadline())


class _ConfigurationProgramme:
    """Proves by patterns that ratings are impossible; `work` limits the nodes of the searches.

    Devices with equal memory are of one kind. A piece is a shard of an option; a pattern contains
    up to `most` copies of it, and each copy covers a share of the table.
    """

    def __init__(self, candidates: Candidates, work: int) -> None:
        space, devices = candidates.space, candidates.devices
        self._presolve, self._work, self._tables = Presolve(candidates), work, space.tables
        kinds = np.flatnonzero(space.storage.any(axis=0))
        capacity = devices.storage[candidates.usable][:, kinds]
        self._capacity, self._counts = np.unique(capacity, axis=0, return_counts=True)
        figures = np.column_stack([space.total, space.storage[:, kinds]])  # of each estimate
        parts, rows = parts_of(space, devices), []
        for candidate, option in enumerate(candidates.options.tolist()):
            count = int(parts.first[option + 1] - parts.first[option])
            unit = parts.unit[parts.first[option]]
            own = figures[space.estimates_of(option)]
            if unit != RANK and count == 1:
                pieces = _one_per_device(own)
            else:
                pieces = _equal_pieces(own, -(-count // devices.hosts) if unit == HOST else None)
            rows += [(candidate, space.table[option], *piece) for piece in pieces]
        # For each piece: its candidate and table, share, most copies; milliseconds, then bytes.
        columns = map(np.array, zip(*rows, strict=True))
        self._candidate, self._table, self._share, self._most, self._figures = columns

    def impossible(self, limit: float) -> bool:
        """Whether it is proven that no plan rates `limit` or less; uses half of the work left.

        Column generation: the master programme's duals are values of tables, for which pricing
        finds better patterns.
        """
        # 1. Rule out options, and list what a pattern can contain on each kind of device.
        allowed = self._presolve.possible(limit, Deadline())
        if allowed is None:
            return True
        items = [self._items(limit, capacity, allowed) for capacity in self._capacity]
        if not np.all(sum(np.diff(of_kind.first) for of_kind in items)):
            return True  # some table fits on no device
        # 2. Begin with equal values of all tables and of all devices, and no pattern.
        counts = self._counts
        master = _Master(self._tables, counts)
        worth = np.full(self._tables, 1 / self._tables)
        level = np.full(len(counts), 1 / counts.sum())
        prices = [np.full(of_kind.cost.shape[1], 1 / self._tables) for of_kind in items]
        end = self._work // 2
        covered = 0.0
        while self._work > end:
            # 3. Find the most valuable pattern of each kind of device. It improves the mixture if
            # its value is above the part of the device's value, `level`, that is covered already.
            total, improved = 0.0, False
            for kind, of_kind in enumerate(items):
                value, pattern, nodes = most_valuable_pattern(
                    of_kind, worth, prices[kind], covered * float(level[kind])
                )
                self._work -= nodes
                total += counts[kind] * value
                if len(pattern):
                    improved = True
                    master.add(kind, of_kind.table[pattern], of_kind.share[pattern])
            # 4. By duality no mixture covers more of every table than `total` divided by the sum of
            # the tables' values. If this is below 1, the rating is impossible.
            if total * (1 + SAFETY) < math.fsum(worth) * (1 - SAFETY):
                return True
            if not improved:
                return False
            # 5. Mix the known patterns; if they cover all tables, nothing is proven.
            covered, worth, level = master.solve()
            if covered >= 1.0 - SAFETY:
                return False
        return False

    def _items(self, limit: float, capacity: Ints, allowed: Bools) -> Items:
        """Return the items of a kind of device within a time limit: copies of pieces."""
        whole = np.concatenate([[limit or 1e-300], np.maximum(capacity, 1)])
        cost = self._figures / whole
        largest = cost.max(axis=1)
        room = np.full(len(cost), np.inf)
        np.divide(1.0 + SAFETY, largest, out=room, where=largest > 0)
        most = np.minimum(self._most, np.minimum(room, 1e6).astype(np.int64))
        most[~allowed[self._candidate]] = 0
        piece = np.repeat(np.arange(len(most)), most)
        times = np.arange(len(piece)) - np.repeat(np.cumsum(most) - most, most) + 1
        table = self._table[piece]
        first = np.searchsorted(table, np.arange(self._tables + 1))
        return Items(first, self._share[piece] * times, cost[piece] * times[:, None])


def _one_per_device(figures: Floats) -> list[tuple[float, int, Floats]]:
    """Return pieces, as `_equal_pieces` does, of an option with one shard on each of its devices.

    A more expensive shard counts as a larger share of the table.
    """
    weight = figures[:, 0] if figures[:, 0].any() else figures.sum(axis=1)
    weight = weight if weight.any() else np.ones(len(figures))
    rows = np.unique(np.column_stack([weight / weight.sum(), figures]), axis=0)
    return [(float(row[0]), 1, row[1:]) for row in rows if row[0] > 0]


def _equal_pieces(figures: Floats, most: int | None) -> list[tuple[float, int, Floats]]:
    """Return the pieces of an option: the share of one copy, the most copies, and its figures.

    Shards that need nothing are ignored; each other shard counts as the smallest of these.
    """
    taking = figures[figures.any(axis=1)]
    if not len(taking):
        return [(1.0, 1, figures[0])]
    return [(1 / len(taking), most or len(taking), taking.min(axis=0))]


class _Master:
    """The master programme: maximises the least covered part of any table over all mixtures."""

    def __init__(self, tables: int, counts: Ints) -> None:
        self._tables, self._counts = tables, counts
        self._highs = highs = Solver()
        infinity = highspy.kHighsInf
        for _ in range(tables):
            highs.addRow(0.0, infinity, 0, [], [])
        for count in counts.tolist():
            highs.addRow(-infinity, count, 0, [], [])
        rows = np.arange(tables, dtype=np.int32)
        highs.addCol(-1.0, 0.0, 2.0, tables, rows, np.full(tables, -1.0))

    def add(self, kind: int, tables: Ints, shares: Floats) -> None:
        """Add a pattern of a kind of device: the shares of tables that it covers."""
        rows = np.append(tables, self._tables + kind).astype(np.int32)
        self._highs.addCol(0.0, 0.0, highspy.kHighsInf, len(rows), rows, np.append(shares, 1.0))

    def solve(self) -> tuple[float, Floats, Floats]:
        """Return the least covered part, and the values of tables and of kinds of devices.

        The values of all tables, and of all devices, sum to 1.
        """
        is_solved(self._highs, math.inf)
        solution = self._highs.getSolution()
        duals = np.array(solution.row_dual)
        worth = np.maximum(duals[: self._tables], 0.0)
        level = np.maximum(-duals[self._tables :], 0.0)
        worth /= worth.sum() or 1.0
        level /= self._counts @ level or 1.0
        return float(solution.col_value[0]), worth, level
