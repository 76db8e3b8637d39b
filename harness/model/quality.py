"""Qualities of a decision, the bounds that are proven on them, and figures set against limits."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

# A bound may pass its quality by this share: the two are summed up in different orders.
_ROUNDING = 1e-6
# A quality within this share of its bound is proven best; no search distinguishes such plans.
_PROVEN = 1e-8


Place = Literal["below", "within", "above", "across"]


def place(interval: tuple[float, float], limits: tuple[float, float]) -> Place:
    """Return where a figure lies by its whole interval; `across` where it may be on either side."""
    if interval[1] < limits[0]:
        return "below"
    if interval[0] > limits[1]:
        return "above"
    if limits[0] <= interval[0] and interval[1] <= limits[1]:
        return "within"
    return "across"


class Quality(Struct, frozen=True):
    """A named figure of a decision, with its unit and which direction is better.

    `bounds` names the quality that no decision can bring beyond this one: it is a proven bound.
    A quality named `gap` is how far that one is from its bound, as a share of 1.
    """

    name: str
    unit: str = ""
    better: Literal["lower", "higher"] = "lower"
    meaning: str = ""
    bounds: str = ""


class Bound(Struct, frozen=True):
    """A proven bound on the first quality of a cell; `better` is the direction of that quality."""

    quality: str
    name: str
    better: str

    def gap(self, values: Mapping[str, float]) -> float:
        """Return how far the quality is from its bound, as a share of 1; NaN where unknown."""
        quality, bound = values.get(self.quality), values.get(self.name)
        if quality is None or bound is None or not (quality > 0 and bound > 0):
            return math.nan
        return quality / bound - 1 if self.better == "lower" else bound / quality - 1

    def is_reached(self, values: Mapping[str, float]) -> bool:
        """Whether the quality is at its bound, so that it is proven best."""
        return self.gap(values) < _PROVEN

    def is_passed(self, values: Mapping[str, float]) -> bool:
        """Whether the quality is better than its bound, so that the bound cannot be one."""
        return self.gap(values) < -_ROUNDING


def find_bound(qualities: Sequence[Quality]) -> Bound | None:
    """Return the bound on the first of some qualities, if it has one."""
    for quality in qualities[1:]:
        if quality.bounds and quality.bounds == qualities[0].name:
            return Bound(qualities[0].name, quality.name, qualities[0].better)
    return None
