"""Estimate a ratio with its interval from paired times, and derive a verdict from the interval."""

import math
import statistics
from collections.abc import Sequence

from harness.model.cell import Ratio, Verdict

NOISE_FLOOR = 0.03
CONFIDENCE = 0.99
# A slow spell of the machine in only one turn of a pair makes the pair's ratio an outlier. So from
# ten pairs on, the most extreme tenth on either side is trimmed.
_TRIMMED = 0.1


def estimate_ratio(variant: Sequence[float], reference: Sequence[float]) -> Ratio:
    """Estimate the ratio of times, in seconds, that are paired by index; see `estimate`.

    Raises:
        ValueError: a time is not positive and finite.
    """
    return estimate(log_ratios(variant, reference))


def log_ratios(variant: Sequence[float], reference: Sequence[float]) -> list[float]:
    """Return the logarithms of the ratios of paired times; raises as `estimate_ratio`."""
    if min(*variant, *reference) <= 0:
        raise ValueError("a time is too short for the clock")
    if not all(map(math.isfinite, (*variant, *reference))):
        raise ValueError("a time is not a number")
    return [math.log(mine / theirs) for mine, theirs in zip(variant, reference, strict=True)]


def estimate(logs: Sequence[float], confidence: float = CONFIDENCE) -> Ratio:
    """Estimate a ratio from the logarithms of the ratios of pairs, at least one.

    The value is the geometric mean of the pairs' ratios; from ten pairs on, trimmed to the middle
    four fifths. The interval is Student's t interval of the logarithms; with trimming, its variant
    by Tukey and McLaughlin (1963), which uses the winsorised standard deviation.
    """
    logs = sorted(logs)
    pairs = len(logs)
    if pairs == 1:
        return Ratio(math.exp(logs[0]), 0.0, math.inf, 1)
    trimmed = _trimmed(pairs)
    kept = logs[trimmed : pairs - trimmed]
    winsorised = [kept[0]] * trimmed + kept + [kept[-1]] * trimmed
    centre = statistics.fmean(kept)
    error = math.sqrt(variance(winsorised) * pairs) / len(kept)
    from scipy.special import stdtrit  # imported here because the import is slow

    half_width = float(stdtrit(len(kept) - 1, (1 + confidence) / 2)) * error
    return Ratio(
        value=math.exp(centre),
        low=_exponential(centre - half_width),
        high=_exponential(centre + half_width),
        pairs=pairs,
    )


def variance(values: Sequence[float]) -> float:
    """Return the sample variance (n - 1); `statistics.variance` takes 40 times as long."""
    mean = statistics.fmean(values)
    return math.fsum((each - mean) ** 2 for each in values) / (len(values) - 1)


def spreads(processes: Sequence[Sequence[float]]) -> tuple[float | None, float | None]:
    """Return the standard deviations of log ratios within processes, and between processes.

    This is a one-way analysis of variance (Fisher 1925): the part due to pairs is subtracted from
    the variance of the processes' means. If each process has a single pair, the first figure
    includes the second, which is then None.
    """
    means = [statistics.fmean(logs) for logs in processes]
    many = [logs for logs in processes if len(logs) > 1]
    if len(processes) < 2 or not many:
        alone = many[0] if many else means
        return (math.sqrt(variance(alone)) if len(alone) > 1 else None), None
    degrees = sum(len(logs) - 1 for logs in many)
    pair = sum(variance(logs) * (len(logs) - 1) for logs in many) / degrees
    explained = pair * statistics.fmean(1 / len(logs) for logs in processes)
    return math.sqrt(pair), math.sqrt(max(0.0, variance(means) - explained))


def trimmed_mean(values: Sequence[float]) -> float:
    """Return the mean of values; from ten values on, only of their middle four fifths."""
    trimmed = _trimmed(len(values))
    return statistics.fmean(sorted(values)[trimmed : len(values) - trimmed])


def _trimmed(number: int) -> int:
    return int(_TRIMMED * number)


def _exponential(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def judge(ratio: Ratio, noise_floor: float = NOISE_FLOOR) -> Verdict:
    """Return the verdict that every ratio in the interval supports, else `inconclusive`."""
    if ratio.high < 1 - noise_floor:
        return "faster"
    if ratio.low > 1 + noise_floor:
        return "slower"
    if 1 - noise_floor <= ratio.low and ratio.high <= 1 + noise_floor:
        return "same"
    return "inconclusive"


def explain(ratio: Ratio, noise_floor: float = NOISE_FLOOR, ended: str = "") -> str:
    """Return a short explanation of the verdict.

    `ended` is the reason why timing stopped; it is added if the verdict is inconclusive.
    """
    verdict = judge(ratio, noise_floor)
    because = f", and {ended}" if ended and verdict == "inconclusive" else ""
    if ratio.pairs == 1:
        return f"one pair has no interval{because}"
    where = {
        "faster": "the whole interval is below",
        "slower": "the whole interval is above",
        "same": "the whole interval is within",
        "inconclusive": "the interval crosses",
    }[verdict]
    return f"{where} 1 ± {noise_floor:.0%} after {ratio.pairs} pairs{because}"
