"""Measures how well asv's step detection finds known steps added to recorded ratios.

Run it as `python tests/harness/measuring/timing/step_detection.py [FILE]`.
FILE is a JSON list of figures in the order of measurement. Without FILE, the figures are medians
from recorded_noise.json next to this file: time ratios of two identical calls.
"""

import json
import math
import random
import statistics
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from asv.step_detect import detect_steps

LENGTH, NEAR, SERIES, LEAST = 120, 2, 60, 0.03
FACTORS = (1.05, 1.1, 1.2, 1.5, 2.0)
RECORDED = Path(__file__).with_name("recorded_noise.json")


def detect(series: Sequence[float]) -> list[int]:
    """Return the positions of the steps of more than 3 % that asv finds."""
    pieces = detect_steps(list(series))
    return [two[0] for one, two in pairwise(pieces) if abs(two[2] / one[2] - 1) > LEAST]


def main() -> None:
    """Print the shares of steps that are found, and of false steps."""
    if len(sys.argv) > 1:
        noise = json.loads(Path(sys.argv[1]).read_text())
    else:
        turns = json.loads(RECORDED.read_text())["turns"]
        noise = [math.exp(statistics.median(each)) for each in turns] * 2
    print(f"{len(noise)} figures, sd of log {statistics.pstdev(map(math.log, noise)):.3f}")
    rng = random.Random(0)
    hits = dict.fromkeys(FACTORS, 0)
    false = found = alone = 0
    for _ in range(SERIES):
        start = rng.randrange(len(noise) - LENGTH + 1)
        flat = noise[start : start + LENGTH]
        alone += len(detect(flat))
        for factor in FACTORS:
            places = [rng.randrange(15, 35), rng.randrange(50, 70), rng.randrange(85, 105)]
            series, level = [], 1.0
            for place, value in enumerate(flat):
                level *= (factor if rng.random() < 0.5 else 1 / factor) if place in places else 1
                series.append(level * value)
            got = detect(series)
            hits[factor] += sum(any(abs(p - g) <= NEAR for g in got) for p in places)
            false += sum(all(abs(p - g) > NEAR for p in places) for g in got)
            found += len(got)
    shares = ", ".join(f"{f:g}: {n / (3 * SERIES):.0%}" for f, n in hits.items())
    print(
        f"found {shares}; {false / max(1, found):.0%} of what is found is none; "
        f"{alone / SERIES:.1f} in a series without a step"
    )


if __name__ == "__main__":
    main()
