"""The distributions that indices are drawn from: how they are drawn, and what they repeat."""

import csv
import math
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import Protocol

import numpy as np
import numpy.typing as npt

from harness.contract import UsageError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

ALLOWED = "uniform, zipf, zipf:EXPONENT or reuse"
_EXPONENT = 1.05  # of Merlin's synthetic models
_SCATTER = 2654435761  # a prime: rows that are hot are not neighbours


class Indices(Protocol):
    """How often the rows of a table are looked up."""

    @property
    def name(self) -> str:
        """How the distribution is asked for."""
        ...

    def draw(self, rows: int, count: int, rng: np.random.Generator) -> Ints:
        """Return so many indices into so many rows."""
        ...

    def distinct(self, rows: int, count: float) -> float:
        """Return how many different rows so many indices name, expected."""
        ...

    def share_of_hottest(self, rows: int, hottest: float, count: float) -> float:
        """Return the part of the indices that name the so many rows that are named most."""
        ...


class Uniform:
    """Every row alike."""

    name = "uniform"

    def draw(self, rows: int, count: int, rng: np.random.Generator) -> Ints:
        """Return so many indices into so many rows."""
        return rng.integers(0, rows, count)

    def distinct(self, rows: int, count: float) -> float:
        """Return how many different rows so many indices name, expected."""
        if rows == 1:
            return min(1.0, count)
        return -rows * math.expm1(count * math.log1p(-1 / rows))

    def share_of_hottest(self, rows: int, hottest: float, count: float) -> float:  # noqa: ARG002  # Reuse needs it
        """Return the part of the indices that name the so many rows that are named most."""
        return min(1.0, hottest / rows)


@dataclass(frozen=True)
class Zipf:
    """The row of rank r is named in proportion to r to the power of minus the exponent."""

    exponent: float = _EXPONENT

    @property
    def name(self) -> str:
        """How the distribution is asked for."""
        return f"zipf:{self.exponent:g}"

    def _until(self, rank: float) -> float:
        """Return the integral of the density from rank 1 to this one."""
        if self.exponent == 1:
            return math.log(rank)
        return float((rank ** (1 - self.exponent) - 1) / (1 - self.exponent))

    def draw(self, rows: int, count: int, rng: np.random.Generator) -> Ints:
        """Return so many indices into so many rows."""
        mass = rng.random(count) * self._until(rows + 1)
        if self.exponent == 1:
            ranks = np.exp(mass)
        else:
            ranks = (mass * (1 - self.exponent) + 1) ** (1 / (1 - self.exponent))
        return (np.minimum(ranks.astype(np.int64), rows) - 1) * _SCATTER % rows

    def distinct(self, rows: int, count: float) -> float:
        """Return how many different rows so many indices name, expected."""
        edges = np.unique(np.geomspace(1, rows + 1, 200))
        mass = np.array([self._until(edge) for edge in edges]) / self._until(rows + 1)
        width = np.diff(edges)
        chance = np.minimum(np.diff(mass) / width, 1 - 1e-12)
        return float((width * -np.expm1(count * np.log1p(-chance))).sum())

    def share_of_hottest(self, rows: int, hottest: float, count: float) -> float:  # noqa: ARG002  # Reuse needs it
        """Return the part of the indices that name the so many rows that are named most."""
        return self._until(min(hottest, rows) + 1) / self._until(rows + 1)


class Reuse:
    """Rows as often again as in Meta's dataset of 2021, by its histogram of a whole batch.

    The histogram is over all tables and a batch of 65,536; a smaller batch is taken to repeat its
    rows as often.
    """

    name = "reuse"

    @cached_property
    def _bins(self) -> tuple[Floats, Floats]:
        """The parts of the indices, and how often a row of them is named in a batch."""
        file = resources.files("planners.embedding") / "data" / "dlrm_datasets_2021_reuse.csv"
        lines = file.read_text("utf-8").splitlines()[1:]
        rows = [(float(row["share"]), float(row["reuse"])) for row in csv.DictReader(lines)]
        share, reuse = np.array(rows).T
        return share / share.sum(), reuse

    def _rows_of_bins(self, rows: int, count: float) -> Floats:
        """Return how many rows each bin has in this table."""
        share, reuse = self._bins
        held = np.clip(share * count / np.maximum(reuse, 1.0), 1.0, None)
        return np.asarray(held * min(1.0, rows / held.sum()))

    def draw(self, rows: int, count: int, rng: np.random.Generator) -> Ints:
        """Return so many indices into so many rows."""
        share, _ = self._bins
        held = self._rows_of_bins(rows, count)
        which = rng.choice(len(share), count, p=share)
        first = np.concatenate([[0.0], np.cumsum(held)[:-1]])
        row = first[which] + rng.random(count) * held[which]
        return row.astype(np.int64) * _SCATTER % rows

    def distinct(self, rows: int, count: float) -> float:
        """Return how many different rows so many indices name, expected."""
        share, _ = self._bins
        held = self._rows_of_bins(rows, count)
        return float(min(rows, (held * -np.expm1(-share * count / held)).sum()))

    def share_of_hottest(self, rows: int, hottest: float, count: float) -> float:
        """Return the part of the indices that name the so many rows that are named most."""
        share, _ = self._bins
        held = self._rows_of_bins(rows, count)
        order = np.argsort(-share / held)
        taken = np.clip(hottest - np.concatenate([[0.0], np.cumsum(held[order])[:-1]]), 0, None)
        return float((share[order] * np.minimum(1.0, taken / held[order])).sum())


def indices_named(text: str) -> Indices:
    """Return the distribution of this name; raises UsageError for another one."""
    kind, _, exponent = text.partition(":")
    if text in ("uniform", "reuse"):
        return Uniform() if text == "uniform" else Reuse()
    if kind == "zipf":
        try:
            value = float(exponent) if exponent else _EXPONENT
        except ValueError:
            value = math.nan
        if 0 < value <= 3:
            return Zipf(value)
    raise UsageError(f"--indices must be {ALLOWED}, not '{text}'; an exponent is from 0 to 3.")
