"""The pieces of a table that a device can hold: shards of an option, and their share of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planners.embedding.best_plan.bounds.patterns import Items
from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.search.space import Floats, Ints, Placement

_STEPS = 60


@dataclass(frozen=True, slots=True)
class _Piece:
    """Shards of an option, of which a device may hold up to `most`, each this share of a table."""

    option: int
    table: int
    estimate: Floats  # milliseconds, then bytes by kind
    share: float
    most: int


class Pieces:
    """The pieces of all candidates, and the kinds of devices: those of equal memory are alike."""

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
            # One shard on a device; a dearer one is a larger share of the table.
            weight = figures[:, 0] if figures[:, 0].any() else figures.sum(axis=1)
            weight = weight if weight.any() else np.ones(len(shards))
            rows = np.unique(np.column_stack([weight / weight.sum(), figures]), axis=0)
            rows = rows[rows[:, 0] > 0]
            return [_Piece(option, table, row[1:], float(row[0]), 1) for row in rows]
        # Shards that take nothing are anywhere, and the others are taken to be the least of them.
        taking = figures[figures.any(axis=1)]
        if not len(taking):
            return [_Piece(option, table, figures[0], 1.0, 1)]
        most = len(taking)
        if placement == Placement.HOSTS:
            most = -(-len(shards) // (devices.host_ranks * devices.hosts))
        return [_Piece(option, table, taking.min(axis=0), 1 / len(taking), most)]

    def items(self, limit: float, kind: int, allowed: npt.NDArray[np.bool_]) -> tuple[Items, Ints]:
        """Return what a device can hold of each table within a limit, and of which options."""
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


def first_worth(items: Sequence[Items]) -> Floats:
    """Return what tables are worth at the prices of limits at which all cost most, 1 in sum."""
    tables = len(items[0].first) - 1
    whole = np.concatenate([each.cost / each.share[:, None] for each in items])
    table = np.concatenate([each.table for each in items])
    prices = np.full(whole.shape[1], 1 / whole.shape[1])
    most, best = -1.0, np.zeros(tables)
    for step in range(_STEPS):
        cost = whole @ prices
        order = np.lexsort((cost, table))
        cheapest = order[np.searchsorted(table[order], np.arange(tables))]
        worth = cost[cheapest]
        if worth.sum() > most:
            most, best = float(worth.sum()), worth
        use = whole[cheapest].sum(axis=0)
        prices = prices * np.exp(0.5 / (1 + 0.2 * step) * (use / max(use.max(), 1e-300) - 1))
        prices /= prices.sum()
    return best / most if most > 0 else np.full(tables, 1 / tables)
