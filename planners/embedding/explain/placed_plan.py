"""Describes a plan for explanations: its shards as arrays, its options and figures as text."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from planners.embedding.decision import Plan
from planners.embedding.search.space import Devices, Ints, Load, SearchSpace, load_of, search_space

KINDS = ("HBM", "DDR", "SSD")

ROUNDING = 1e-9
"""A smaller share of a figure than this is rounding."""

Row = tuple[str | float | None, ...]
"""A row of a table for readers."""


class PlacedPlan:
    """A plan of T tables with S shards on R ranks, and the load of the ranks.

    `space` has one option per table, so a table and its option have the same number. `table` and
    `rank` are those of each shard, shape (S,). `bound_ms` is what the planner proved for all plans.
    """

    def __init__(self, plan: Plan, devices: Devices) -> None:
        self.options = options = plan.options
        self.devices, self.bound_ms = devices, plan.bound_ms
        self.space = search_space(options)
        self.table = np.repeat(np.arange(len(options)), np.diff(self.space.first_shard))
        self.rank = np.array([shard.rank for option in options for shard in option.shards])
        self.load = self.load_of(np.arange(len(options)))
        times = Counter(option.name for option in options)
        # Names are shown with their path only if two tables have the same name.
        self.names = [option.fqn if times[option.name] > 1 else option.name for option in options]
        self.number = {option.fqn: table for table, option in enumerate(options)}

    def load_of(self, tables: Ints) -> Load:
        """Return the load of some of the tables, in ascending order."""
        ranks = self.rank[np.isin(self.table, tables)]
        return load_of(self.space, tables, ranks, self.devices.ranks)

    def without(self, table: int) -> Load:
        """Return the load of all other tables."""
        return self.load_of(np.delete(np.arange(len(self.options)), table))


def by_kind(storage: Ints) -> dict[str, int]:
    """Sum bytes of shape (N, 3) by the kind of memory."""
    return dict(zip(KINDS, storage.sum(axis=0).tolist(), strict=True))


def described(space: SearchSpace, number: int) -> str:
    """Return an option as text: number of shards, sharding type, kernel."""
    option, shards = space.options[number], len(space.estimates_of(number))
    return f"{shards} x {option.sharding_type} {option.compute_kernel}"


def ms(value: float) -> str:
    """Return milliseconds as text."""
    return f"{value:.4g} ms"


def percent_above(value: float, other: float) -> str:
    """Return as text by how many percent `value` exceeds `other`, which may be 0."""
    return f"{100 * (value / other - 1):.3g} % above" if other else "above"


def gib(value: float) -> str:
    """Return bytes as text, in GiB."""
    return f"{value / 2**30:,.4g}"


def in_gib(value: float) -> float:
    """Convert bytes to GiB, rounded to about 1 MiB, for a column of a table."""
    return round(value / 2**30, 3)


def shortened(rows: Sequence[Row], most: int, summed: int) -> tuple[Row, ...]:
    """Return the first `most` rows, and a row for the others with the sum of column `summed`."""
    others = rows[most:]
    if not others:
        return tuple(rows)
    last: list[str | float | None] = ["" if isinstance(cell, str) else None for cell in others[0]]
    last[0] = f"{len(others)} more"
    last[summed] = sum(float(row[summed] or 0.0) for row in others)
    return (*rows[:most], tuple(last))
