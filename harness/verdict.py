"""From paired times to a ratio with an interval, and from the interval to a verdict."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Verdict = Literal["faster", "slower", "same", "inconclusive"]

NOISE_FLOOR = 0.03
CONFIDENCE = 0.95
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Ratio:
    """Time of a variant over time of the reference, with a 95 % interval; lower is better.

    `pairs` is how many pairs of interleaved turns it was estimated from. The interval is
    infinitely wide for a single pair.
    """

    value: float
    low: float
    high: float
    pairs: int


def estimate_ratio(
    variant: Sequence[float], reference: Sequence[float], seed: int, confidence: float = CONFIDENCE
) -> Ratio:
    """Estimate the ratio from times in seconds, paired turn by turn.

    The value is the geometric mean of the pairs' ratios. The interval is the wider of a bootstrap
    percentile interval and Student's interval on the logarithms: below some ten pairs the bootstrap
    alone is too narrow (Hesterberg 2015, "What Teachers Should Know About the Bootstrap").

    Raises:
        ValueError: no pairs, unequal lengths, or a time that is not positive and finite.
    """
    if not variant or len(variant) != len(reference):
        raise ValueError("times must come in pairs, at least one")
    if min(*variant, *reference) <= 0:
        raise ValueError("a time is too short for the clock")
    if not all(map(math.isfinite, (*variant, *reference))):
        raise ValueError("a time is not a number")
    logs = np.log(np.asarray(variant, dtype=float) / np.asarray(reference, dtype=float))
    pairs = len(logs)
    centre = float(logs.mean())
    if pairs == 1:
        return Ratio(math.exp(centre), 0.0, math.inf, 1)
    resampled = np.random.default_rng(seed).choice(logs, size=(_RESAMPLES, pairs)).mean(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    from scipy.stats import t  # half a second to import, so only where it is needed

    half_width = float(t.ppf(1 - tail, pairs - 1)) * float(logs.std(ddof=1)) / math.sqrt(pairs)
    return Ratio(
        value=math.exp(centre),
        low=math.exp(min(float(low), centre - half_width)),
        high=math.exp(max(float(high), centre + half_width)),
        pairs=pairs,
    )


def judge(ratio: Ratio, noise_floor: float = NOISE_FLOOR) -> Verdict:
    """Return the verdict that the whole interval supports, else `inconclusive`."""
    if ratio.high < 1 - noise_floor:
        return "faster"
    if ratio.low > 1 + noise_floor:
        return "slower"
    if 1 - noise_floor <= ratio.low and ratio.high <= 1 + noise_floor:
        return "same"
    return "inconclusive"


def explain(ratio: Ratio, noise_floor: float = NOISE_FLOOR) -> str:
    """Say in a few words why the verdict is what it is."""
    if ratio.pairs == 1:
        return "one pair has no interval"
    where = {
        "faster": "the whole interval is below",
        "slower": "the whole interval is above",
        "same": "the whole interval is within",
        "inconclusive": "the interval crosses",
    }[judge(ratio, noise_floor)]
    return f"{where} 1 ± {noise_floor:.0%} after {ratio.pairs} pairs"
