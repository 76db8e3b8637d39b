"""Distributions of lookups over the rows of a table: draws, distinct rows and hot rows."""

import csv
import math
from abc import ABC, abstractmethod
from functools import cache
from importlib import resources

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from harness.contract import UsageError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_EXPONENT = 1.05  # of Merlin's synthetic models
_SCATTER = 2654435761  # a prime, so that hot rows are not adjacent


class LookupDistribution(ABC):
    """A distribution of lookups as ranges of rows; the rows of a range are equally likely."""

    name: str

    @abstractmethod
    def ranges(self, rows: int, count: float) -> tuple[Floats, Floats]:
        """Return ranges of a table with `rows` rows for `count` lookups, the hottest range first.

        The arrays are the number of rows in each range, which may be a fraction, and the range's
        share of the lookups.
        """

    def draw(self, rows: int, count: int, rng: np.random.Generator) -> Ints:
        """Draw the row indices of `count` lookups in a table with `rows` rows, shape (count,)."""
        sizes, share = self.ranges(rows, count)
        chosen = rng.choice(len(share), count, p=share)
        row = (np.cumsum(sizes) - sizes)[chosen] + rng.random(count) * sizes[chosen]
        return np.minimum(row.astype(np.int64), rows - 1) * _SCATTER % rows

    def distinct(self, rows: int, count: float) -> float:
        """Return the expected number of distinct rows in `count` lookups."""
        sizes, share = self.ranges(rows, count)
        # A row of probability p is looked up at least once with 1 - (1 - p) ** count.
        chance = np.minimum(share / sizes, 1 - 1e-12)
        return min(float(rows), float((sizes * -np.expm1(count * np.log1p(-chance))).sum()))

    def share_of_hottest(self, rows: int, hottest: float, count: float) -> float:
        """Return the share of `count` lookups that hit the `hottest` most frequent rows."""
        sizes, share = self.ranges(rows, count)
        return float(np.interp(hottest, [0, *np.cumsum(sizes)], [0, *np.cumsum(share)]))


class UniformLookups(LookupDistribution):
    """All rows are equally likely."""

    name = "uniform"

    @override
    def ranges(self, rows: int, count: float) -> tuple[Floats, Floats]:
        return np.array([float(rows)]), np.ones(1)

    @override  # planners call this for every shard; the closed form takes a hundredth of the time
    def distinct(self, rows: int, count: float) -> float:
        return -rows * math.expm1(count * math.log1p(-1 / rows)) if rows > 1 else min(1.0, count)

    @override
    def share_of_hottest(self, rows: int, hottest: float, count: float) -> float:
        return min(1.0, hottest / rows)


class Zipf(LookupDistribution):
    """The probability of the r-th most frequent row is proportional to r ** -exponent.

    The ranges grow geometrically, so that the rows of a range are nearly equally likely.
    """

    def __init__(self, exponent: float = _EXPONENT) -> None:
        self.exponent = exponent
        self.name = f"zipf:{exponent:g}"

    @override
    def ranges(self, rows: int, count: float) -> tuple[Floats, Floats]:
        edges = np.geomspace(1, rows + 1, 200)
        power = 1 - self.exponent
        mass = np.log(edges) if power == 0 else (edges**power - 1) / power
        return np.diff(edges), np.diff(mass) / mass[-1]


class Reuse(LookupDistribution):
    """Rows repeat within a batch as in Meta's dataset of 2021, by a histogram of their reuse.

    The histogram covers all tables and a batch of 65,536; a smaller batch is assumed to repeat its
    rows equally often.
    """

    name = "reuse"

    @override
    def ranges(self, rows: int, count: float) -> tuple[Floats, Floats]:
        share, reuse = _histogram()
        sizes = np.clip(share * count / np.maximum(reuse, 1.0), 1.0, None)
        sizes *= min(1.0, rows / sizes.sum())
        order = np.argsort(-share / sizes)
        return sizes[order], share[order]


@cache
def _histogram() -> tuple[Floats, Floats]:
    """Return each row group's share of all lookups, and the number of lookups of one such row."""
    file = resources.files("planners.embedding") / "data" / "dlrm_datasets_2021_reuse.csv"
    lines = file.read_text("utf-8").splitlines()[1:]
    rows = [(float(row["share"]), float(row["reuse"])) for row in csv.DictReader(lines)]
    share, reuse = np.array(rows).T
    return share / share.sum(), reuse


def distribution_named(text: str) -> LookupDistribution:
    """Return the distribution with this name; raises UsageError for an unknown name."""
    kind, _, exponent = text.partition(":")
    if text in ("uniform", "reuse"):
        return UniformLookups() if text == "uniform" else Reuse()
    if kind == "zipf":
        try:
            value = float(exponent) if exponent else _EXPONENT
        except ValueError:
            value = math.nan
        if 0 < value <= 3:
            return Zipf(value)
    raise UsageError(
        f"--indices must be uniform, zipf, zipf:EXPONENT or reuse, not '{text}'; an exponent is "
        "from 0 to 3."
    )
