"""Record the timing noise between identical calls on this machine.

Run it as `python -m tests.harness.measuring.timing.record_noise`.

The script writes recorded_noise.json next to this file: for each method of timing, the logarithms
of the time ratios of two identical variants, as a list per process.
"""

import json
import math
import random
from functools import partial
from pathlib import Path

from harness.contract import Prepared
from harness.measuring.selftest import copies
from harness.measuring.timing.turns import long_lived_objects_left_alone
from harness.measuring.timing.ways import BLOCK_SECONDS, SideBySide, Variants, cores, in_forks

FILE = Path(__file__).with_name("recorded_noise.json")
PROCESSES = 120
DIGITS = 5


def record(way: str, milliseconds: float) -> list[list[float]]:
    """Time two identical variants; return the logarithms of their pairs' ratios, by process."""
    names = ["reference", "identical"]
    prepared = {name: Prepared(partial(copies, milliseconds)) for name in names}
    seconds = dict.fromkeys(names, milliseconds / 1000)
    ones = dict.fromkeys(names, 1)
    both = Variants(prepared, ones, seconds)
    time_block = {
        "turns": partial(in_forks, BLOCK_SECONDS),
        "side by side": SideBySide(cores()),
    }[way]
    rng = random.Random(0)
    processes = []
    with long_lived_objects_left_alone():
        for _ in range(PROCESSES):
            turns = time_block(both, names, rng)
            mine, theirs = ([turn.cpu_s for turn in turns[name]] for name in names)
            if way == "side by side":
                mine, theirs = [sum(mine) / len(mine)], [sum(theirs) / len(theirs)]
            pairs = zip(mine, theirs, strict=False)
            processes.append([round(math.log(a / b), DIGITS) for a, b in pairs])
    return processes


if __name__ == "__main__":
    found = {"turns": record("turns", 2.0), "side by side": record("side by side", 30.0)}
    FILE.write_text(json.dumps(found) + "\n", encoding="utf-8")
