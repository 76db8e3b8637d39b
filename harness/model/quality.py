"""Qualities of decisions, proven bounds on them, limits, and which decisions must agree."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

# A bound may exceed its quality by this share, since the two are summed in different orders.
_ROUNDING = 1e-6
# A quality within this share of its bound is proven optimal; no search resolves less.
_PROVEN = 1e-8


Place = Literal["below", "within", "above", "across"]


def place(interval: tuple[float, float], limits: tuple[float, float]) -> Place:
    """Return the position of an interval relative to `limits`; `across` if it crosses a limit."""
    if interval[1] < limits[0]:
        return "below"
    if interval[0] > limits[1]:
        return "above"
    if limits[0] <= interval[0] and interval[1] <= limits[1]:
        return "within"
    return "across"


class Quality(Struct, frozen=True):
    """A named figure of a decision, with its unit and the direction that is better.

    If `bounds` is set, this quality is a proven bound on the quality of that name: no decision can
    be better. The quality named `gap` is the distance of a quality from its bound (0.01 is 1 %).
    """

    name: str
    unit: str = ""
    better: Literal["lower", "higher"] = "lower"
    meaning: str = ""
    bounds: str = ""


class Bound(Struct, frozen=True):
    """A proven bound, named `name`, on a cell's first quality; `better` is "lower" or "higher"."""

    quality: str
    name: str
    better: str

    def gap(self, values: Mapping[str, float]) -> float:
        """Return the distance of the quality from its bound (0.01 is 1 %); NaN if unknown."""
        quality, bound = values.get(self.quality), values.get(self.name)
        if quality is None or bound is None or not (quality > 0 and bound > 0):
            return math.nan
        return quality / bound - 1 if self.better == "lower" else bound / quality - 1

    def is_reached(self, values: Mapping[str, float]) -> bool:
        """Return whether the quality equals its bound, so that the decision is proven optimal."""
        return self.gap(values) < _PROVEN

    def is_passed(self, values: Mapping[str, float]) -> bool:
        """Return whether the quality is better than its bound, so that the bound is wrong."""
        return self.gap(values) < -_ROUNDING


def find_bound(qualities: Sequence[Quality]) -> Bound | None:
    """Return the bound on the first quality of the list, or None if it has none."""
    for quality in qualities[1:]:
        if quality.bounds and quality.bounds == qualities[0].name:
            return Bound(qualities[0].name, quality.name, qualities[0].better)
    return None


def models_of(variant: str, same_as: Mapping[str, str | None]) -> list[str]:
    """Return the variants that `variant` must agree with, directly or indirectly, nearest first.

    `same_as` maps a variant to the variant that it reproduces. A cycle lists each variant once.
    """
    chain = [variant]
    while (target := same_as.get(chain[-1])) and target not in chain:
        chain.append(target)
    return chain[1:]
